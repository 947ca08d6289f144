"""The sandbox of chat templates: what it hides, and that everything in it comes to an end."""

import contextlib
import gc
from pathlib import Path

import pytest

from glassformer.core.errors import ChatError
from glassformer.text import chat_budget
from glassformer.text.chat import render_chat

USER = {"role": "user", "content": " Hi <b>you</b>\n"}

ATTACKS = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ raise_exception.__code__.co_names }}",
    "{{ (messages | attr('__class__')).mro() }}",
    "{{ '{0.__class__.__mro__}'.format(1).x.y }}",
    "{{ dict.__base__.__subclasses__() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% set ns = namespace(__class__=1) %}",
    "{% set ns = namespace() %}{% set ns.__dict__ = 1 %}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(role='system') }}",
    "{{ messages.clear() }}",
    "{% include 'pyproject.toml' %}",
    "{% import 'os' as os %}",
    "{% extends 'x' %}",
    "{{ open('pyproject.toml').read() }}",
    "{{ self._TemplateReference__context.environment.x }}",
    "{{ lipsum(n=2) }}",
    "{{ (messages[0].content | safe).unescape() }}",
    "{{ messages[0].content.translate({}) }}",
    "{{ 'x'.encode() }}",
    "{{ (1).to_bytes(4) }}",
    "{{ '%c' % 65 }}",
    "{{ '{:c}'.format(65) }}",
    "{{ [[1]] | sum(start=[]) }}",
]


@pytest.mark.parametrize("template", ATTACKS)
def test_a_template_cannot_leave_its_sandbox(template):
    messages = [dict(USER)]
    with pytest.raises(ChatError):
        render_chat(template, messages)
    assert messages == [USER]


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__ }}", "{{ raise_exception.__globals__ }}", "{{ messages.__len__ }}"]
)
def test_what_is_hidden_writes_nothing(template):
    assert render_chat(template, [USER]) == ""


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(10**6) %}{% endfor %}",
        "{% for a in 'x' * 10000 %}{% for b in 'x' * 10000 %}{% set c = 1 %}{% endfor %}{% endfor %}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 10**10 }}",
        "{{ 10**9 * [1] }}",
        "{{ 7 ** 10000000 }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{% set ns = namespace(x='xx') %}{% for i in range(64) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='xx') %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=3) %}{% for i in range(64) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{% set line = 'x' * 100000 %}{% for i in range(1000) %}{{ line }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{% macro m() %}{{ caller() }}{% endmacro %}{% for i in range(9999) %}{% call m() %}"
        + "x" * 9999
        + "{% endcall %}{% endfor %}",
        "{% for a in [1] recursive %}{% if loop.depth < 9 %}{{ loop(range(99)) }}{% endif %}{% endfor %}",
        "{% for a in [1] if loop is defined or a recursive %}{{ loop(range(99)) }}{% endfor %}",
        "{% for i in range(99999) if i < 0 %}{% endfor %}",
        "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
        "{{ 'x'.ljust(400000000) }}",
        "{{ 'x' | center(400000000) }}",
        "{{ '{:400000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 400000000) }}",
        "{{ ('{}' * 9999).format(*['x' * 99999] * 9999) }}",
        "{{ '%400000000d' | format(1) }}",
        "{{ ('%(a)s' * 9999) % {'a': 'x' * 99999} }}",
        "{{ ('é' * 4000000) | list }}",
        "{{ ('a ' * 2000000).split() }}",
        "{{ ('a\\n' * 2000000).splitlines() }}",
        "{{ ('%999s' * 9999) % (('x',) * 9999) }}",
        "{{ ('{:999}' * 9999).format(*('x',) * 9999) }}",
        "{{ '%(a%b)99999d' % {'a%b': 1} }}",
        "{{ ('%(' * 999999) % 1 }}",
        "{{ ('x' * 999999).strip('y' * 999 + 'x') }}",
        "{{ ('x' * 999999) | trim('y' * 999 + 'x') }}",
        "{{ ('\\n' * 99999) | indent(60000) }}",
        "{{ ('x' * 99999).replace('x', 'y' * 99999) }}",
        "{{ ('x' * 99999) | replace('x', 'y' * 99999) }}",
        "{{ range(99999) | join('x' * 99999) }}",
        "{{ ('x' * 99999).join(range(99999) | map('string')) }}",
        "{{ [1] | batch(10 ** 9, 2) | list }}",
        "{{ 1.5 | round(10 ** 9, 'ceil') }}",
        "{{ [1] * 99999 | tojson(indent=10 ** 6) }}",
        "{{ ([1] * 99999) | tojson(separators=('x' * 99999, 'y')) }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(64) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
        "{% set ns = namespace(x=1) %}{% for i in range(64) %}{% set ns.x = dict(a=ns.x, b=ns.x) %}{% endfor %}",
        "{% set ns = namespace(x=(1, 1)) %}{% for i in range(64) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set x = 'x' * 4000000 %}{% for i in range(99) %}{% set y = x[1:] %}{% endfor %}",
        "{% set x = 'x' * 4000000 %}{% for i in range(99999) %}{% if 'xy' in x %}{% endif %}{% endfor %}",
        "{% set x = [1] * 99999 %}{% for i in range(999) %}{% if x == x[:] %}{% endif %}{% endfor %}",
        "{% set x = 'x' * 4000000 %}{% macro m() %}{% for i in range(999) %}{{ x }}{% endfor %}{% endmacro %}{{ m() }}",
        "{% for i in range(999) %}" + "{% set a = 1 %}" * 999 + "{% endfor %}",
        "{% for i in range(99) %}{{ range(99999) | sum }}{% endfor %}",
        "{% for i in range(99) %}{{ range(99999) | max }}{% endfor %}",
        "{% for i in range(99) %}{{ 'x' in range(99999) }}{% endfor %}",
        "{{ ('a ' * 2000000) | title }}",
        "{{ strftime_now('%9999d' * 600000) }}",
        "{{ ('\U0001f600' * 999999) | urlencode }}",
    ],
)
def test_a_template_comes_to_an_end(template, monkeypatch):
    monkeypatch.setattr(chat_budget, "MOST_STEPS", 1 << 18)  # less than it is, so that it comes soon
    with pytest.raises(ChatError, match=r"was stopped|does not come to an end"):
        render_chat(template, [USER])


# Those that take most of all that were tried: texts that grow, lists of small and of large texts, all kept.
GREEDY = [
    "{{ ('a ' * 300000) | title }}",
    "{{ ('ΐ' * 4000000).upper() }}",
    "{{ (['a'] * 100000) | map('center', 4000) | list }}",
    "{% set ns = namespace(y=[]) %}{% for i in range(9999) %}{% set ns.y = [ns.y, 'a' * 99999 ~ 'é😀'] %}{% endfor %}",
    "{% set ns = namespace(y=[]) %}{% for i in range(999) %}{% set ns.y = [ns.y, ('a ' * 9999).split()] %}{% endfor %}",
]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux tells how much memory was in use")
def test_a_template_takes_less_than_300_mb(limited):
    gc.collect()
    for template in GREEDY:
        with limited(), contextlib.suppress(ChatError):
            render_chat(template, [USER])


@pytest.fixture
def limited():
    """What fails if more than 300 MB come into use."""

    def figure(name):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

    @contextlib.contextmanager
    def watched():
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        before = figure("VmRSS")
        yield
        assert figure("VmHWM") - before < 300

    return watched


def test_what_real_templates_do_is_within_the_bounds():
    """A conversation of 3,000 turns and a million characters, through macros, slices and lists."""
    template = (
        "{% macro show(m, n) %}{{ '<' ~ m.role ~ '>' + m.content | trim }}{% for i in range(n) %}.{% endfor %}"
        "{% endmacro %}"
        "{% set rest = messages[1:] %}{% set ns = namespace(last=-1) %}"
        "{% for m in rest | reverse %}{% if ns.last < 0 and m.role == 'user' %}{% set ns.last = loop.index0 %}"
        "{% endif %}{% endfor %}{% for m in rest %}{{ show(m, 3) }}{{ messages | length - loop.index }}"
        "{% if 'tool' in m or m['content'].startswith('x') %}{{ {'a': m.role} | tojson(indent=2) }}{% endif %}"
        "{% endfor %}"
    )
    text = render_chat(template, [{"role": "user", "content": f" {'word ' * 66}"}] * 3001)
    assert text.count("<user>word") == 3000
    assert text.endswith("word...1")


def test_a_namespace_that_holds_itself_can_be_written():
    template = "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}{{ [ns] }}"
    assert render_chat(template, []) == "<Namespace>[<Namespace>]"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ '%s: %d%%' % ('a', 3) }}{{ '%5.1f|' | format(2.25) }}", "a: 3%  2.2|"),
        ("{{ 'Date: {} {c!r:>4}'.format(1, c='x') }}{{ '{{}}'.format() }}", "Date: 1  'x'{}"),
        ("{{ [1, 'a'] | join(', ') }}{{ ['x', 'y'] | map('upper') | join }}", "1, aXY"),
        ("{{ [{'a': 1}, {'a': 2}] | join('+', attribute='a') }}", "1+2"),
        ("{{ 'abab' | replace('a', 'c', 1) }}{{ 'a\nb' | indent(2, true) }}", "cbab  a\n  b"),
        ("{{ [3, 1] | sort }}{{ [1, 2] | sum }}{{ 'x' | center(3) }}{{ none | string }}", "[1, 3]3 x None"),
        ("{{ ('<b>' | safe) ~ '<' }}{{ '<' | e }}{{ 1 in [1] and not 'a' in {} }}", "<b><&lt;True"),
        ("{% for k, v in {'a': 1}.items() if v %}{{ k }}{{ loop.length }}{{ loop.last }}{% endfor %}", "a1True"),
        ("{% set x %}a{{ 1 }}{% endset %}{{ x }}{{ x is eq 'a1' }}{{ (1, [2])[1:] }}", "a1True([2],)"),
        ("{{ range(5) | batch(2) | list }}{{ 'a b'.split() | last }}", "[[0, 1], [2, 3], [4]]b"),
    ],
)
def test_what_is_bounded_still_does_what_jinja_does(template, text):
    assert render_chat(template, []) == text
