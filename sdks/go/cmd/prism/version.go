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
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/apache/beam/sdks/v2/go/pkg/beam/core"
)

// build tells builds of one release apart. The linker sets it:
//
//	go build -ldflags "-X main.build=local.1" ./go/cmd/prism
var build string

func init() {
	flag.BoolFunc("version", "print the version of this binary, and exit", printVersion)
}

// version is the release, and behind a plus sign the build, if it has a name.
func version() string {
	if build == "" {
		return core.SdkVersion
	}
	return core.SdkVersion + "+" + build
}

// printVersion ends the process while flags are parsed: nothing has begun yet.
func printVersion(value string) error {
	if wanted, err := strconv.ParseBool(value); err != nil || !wanted {
		return err
	}
	fmt.Println("Prism", version())
	os.Exit(0)
	return nil
}

// logVersion lets the log of a job say which binary ran it.
func logVersion(ctx context.Context) {
	slog.InfoContext(ctx, "starting Prism", slog.String("version", version()))
}
