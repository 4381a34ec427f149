"""From raw click logs to an encoded, sharded, checksummed folder: map and reduce over chunks.

The passes, each a pure function over its jobs (:mod:`recsys.prepare.run` puts them together):

1. ``stage``: read a piece of the input, check every value, keep the rows as columns of dictionary codes.
2. ``count``: settle each row's split, count the values of the train rows, sum the dense columns exactly.
3. ``fit``: for each categorical column merge the counts to a vocabulary and number every chunk's values.
4. ``parts``: write parquet parts, cut at fixed row numbers of their split.
"""
