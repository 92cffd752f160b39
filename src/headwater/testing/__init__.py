"""The verifiers that ship: naive models, random schedules, a disk that fails, and the harnesses that use them."""
