"""What is stamped on a new pod, what is refused, and what does an object say at another version?

Owns the stamps, the seats of shares on demand and what is known of images. Imports no room that decides, and stands in nobody's way: what goes wrong admits the
object, and a review waits for nothing but a namespace that is not known yet, 0.1 s.
"""
