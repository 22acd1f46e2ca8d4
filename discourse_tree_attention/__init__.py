"""Xiao, Huber & Carenini (2020), Do We Really Need That Many Parameters in Transformer for
Extractive Summarization?
Discourse Can Help!, CODI 2020.

The self-attention of a document encoder is replaced by a fixed matrix read off the document's
discourse tree: no parameters for queries and keys, and summaries about as good as those of learned
single-head attention.

The idea is in matrices.py (`d_tree`, `c_tree`, `c_tree_nuclearity`), on the trees of trees.py
(`read_tree`); the network around it is in model.py (`Summarizer`). Nothing is imported here, for
trees need Python alone.
"""
