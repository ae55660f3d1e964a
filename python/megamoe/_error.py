"""The package's one exception type."""


class Error(RuntimeError):
    """A failure that the library reports; the text names the offending values.

    `code` is one of invalid_argument, invalid_file, unsupported, disagreement, fault, system.
    """

    code: str

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
