"""What crosses a wire or a disk: commits, verdicts and the log record. Plain frozen structs, no behaviour."""
