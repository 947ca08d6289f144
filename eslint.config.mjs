// The linter of the explorer's page; names that nothing declares are found by the type check.
import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    files: ["src/glassformer/web/page/*.js"],
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "off",
      "max-len": ["error", 110],
      "no-unused-vars": ["error", { ignoreRestSiblings: true }],
      eqeqeq: "error",
      "no-var": "error",
      "prefer-const": "error",
      "object-shorthand": "error",
    },
  },
];
