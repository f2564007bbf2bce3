// Licensed to the Apache Software Foundation (ASF) under one or more
// contributor license agreements.  See the NOTICE file distributed with
// this work for additional information regarding copyright ownership.
// The ASF licenses this file to You under the Apache License, Version 2.0
// (the "License"); you may not use this file except in compliance with
// the License.  You may obtain a copy of the License at
//
//    http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core"
)

const beMain = "PRISM_TEST_IS_MAIN"

// TestMain lets the test binary be Prism itself, with its flags and its main.
func TestMain(m *testing.M) {
	if os.Getenv(beMain) != "" {
		build = os.Getenv(beMain)
		main()
		return
	}
	os.Exit(m.Run())
}

func asPrism(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), beMain+"=local.1")
	return cmd
}

func TestVersion(t *testing.T) {
	if got, want := version(), core.SdkVersion; got != want {
		t.Errorf("version() of a plain build = %q, want %q", got, want)
	}
	build = "local.2"
	defer func() { build = "" }()
	if got, want := version(), core.SdkVersion+"+local.2"; got != want {
		t.Errorf("version() = %q, want %q", got, want)
	}
}

func TestVersionFlag(t *testing.T) {
	out, err := asPrism("--version").CombinedOutput()
	if err != nil {
		t.Fatalf("prism --version: %v: %s", err, out)
	}
	if got, want := string(out), "Prism "+core.SdkVersion+"+local.1\n"; got != want {
		t.Errorf("prism --version printed %q, want %q", got, want)
	}
}

func TestVersionFlagTakesNoOtherValue(t *testing.T) {
	out, err := asPrism("--version=loud").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "loud") {
		t.Errorf("prism --version=loud: %v, printed %q", err, out)
	}
}

// The log of a running Prism says which one it is, before it serves anything.
func TestVersionIsLogged(t *testing.T) {
	cmd := asPrism("--version=false", "--job_port=0", "--serve_http=false", "--log_kind=json")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer func() {
		timer.Stop()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `"version":"`+core.SdkVersion+`+local.1"`) {
			return
		}
		t.Logf("before it: %s", lines.Text())
	}
	t.Error("the log of Prism ended without its version")
}
