"""tinyllm: a small inference package that decodes speculatively, and the course book that builds it.

Layers, imports downward only: ``explore`` > ``infer.spec`` > ``infer.generate`` > ``infer.{sample, kvcache}`` >
``prob, lm, tok, xfmr`` > ``num, info``. Nothing is imported here, so that ``import tinyllm`` costs nothing.
"""
