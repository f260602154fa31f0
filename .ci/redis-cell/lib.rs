//! Empty. `.ci/install-test-tools` builds only the dependency.
