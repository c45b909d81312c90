"""A stage that shows what travels beside the items."""


class Passports:
    """A stream that puts the passport beside the item."""

    def stream(self, items):
        for item in items:
            yield item, items.passport
