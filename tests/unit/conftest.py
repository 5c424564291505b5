"""Property tests run on busy machines, where the time that one example takes says nothing."""

import hypothesis

hypothesis.settings.register_profile("sub100", deadline=None)
hypothesis.settings.load_profile("sub100")
