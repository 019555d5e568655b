"""View models, and the terminal, HTML, Markdown and CSV made from them."""
