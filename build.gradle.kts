// Each task calls ./beamstack, which does the work.
project(":sdks:python") {
  fun beamstack(name: String, what: String, vararg arguments: String) =
    tasks.register<Exec>(name) {
      group = "beamstack"
      description = what
      workingDir = rootDir
      commandLine("./beamstack", *arguments)
    }

  beamstack("test", "Runs all tests of the series.", "test")
  beamstack("check", "Holds the series against its rules.", "check")
  beamstack("wheel", "Makes the dev wheel.", "wheel")
}
