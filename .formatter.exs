[
  inputs: ["{mix,.formatter}.exs", "{lib,mix,test,bench,examples}/**/*.{ex,exs}"],
  line_length: 110,
  locals_without_parens: [fallible: 1]
]
