"""Where the words of a figure stand, as matplotlib itself measures them."""

from weakref import WeakKeyDictionary

from matplotlib.backends.backend_agg import FigureCanvasAgg

_renderers = WeakKeyDictionary()


def drawn(figure):
    """Arrange a figure once, as drawing does, and return what measures it; no dot is set."""
    if figure not in _renderers:
        renderer = _renderers[figure] = FigureCanvasAgg(figure).get_renderer()
        with renderer._draw_disabled():
            figure.draw(renderer)
    return _renderers[figure]


def overlapping_ticks(figure):
    """Return the pairs of neighboring tick labels that touch each other, on any axis of a figure."""
    renderer = drawn(figure)
    touching = []
    for axis in (axis for ax in figure.axes for axis in (ax.xaxis, ax.yaxis)):
        ticks = sorted(axis._update_ticks(), key=lambda tick: tick.get_loc())
        for number in (1, 2):
            words = [getattr(tick, f"label{number}") for tick in ticks]
            words = [text for text in words if text.get_visible() and text.get_text()]
            boxes = [text.get_window_extent(renderer) for text in words]
            touching += [
                (words[i].get_text(), words[i + 1].get_text())
                for i in range(len(boxes) - 1)
                if boxes[i].overlaps(boxes[i + 1])
            ]
    return touching


def cut_words(figure):
    """Return the words that stand partly outside of the figure."""
    renderer = drawn(figure)
    edge = figure.bbox
    found = [figure._suptitle, figure._supxlabel, figure._supylabel, *figure.texts]
    legends = [*figure.legends, *(ax.get_legend() for ax in figure.axes if ax.get_legend())]
    found += [text for legend in legends for text in legend.get_texts()]
    for ax in figure.axes:
        found += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        for axis in (ax.xaxis, ax.yaxis):
            found += [text for tick in axis._update_ticks() for text in (tick.label1, tick.label2)]
    boxes = [
        (text.get_text(), text.get_window_extent(renderer))
        for text in found
        if text is not None and text.get_visible() and text.get_text()
    ]
    return [
        words
        for words, box in boxes
        if box.x0 < edge.x0 - 1 or box.y0 < edge.y0 - 1 or box.x1 > edge.x1 + 1 or box.y1 > edge.y1 + 1
    ]
