"""What do objects say, and what does that mean? Structs, names, conditions, hashes, versions, and the definitions made of them.

Pure; knows no controller.
"""
