// Lets people who have Gradle say `gradle :sdks:python:test`, as in Beam.
rootProject.name = "beam-stack"

include(":sdks:python")
