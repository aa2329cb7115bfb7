// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Version describes the build.
type Version struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Time     string `json:"time,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// BuildVersion returns the version of this program.
func BuildVersion() Version {
	v := Version{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.time":
			v.Time = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String returns one line: pillion v0.1.0 (revision 0123abcd, go1.26.0, linux/amd64). The
// version of a build between two releases contains the revision, and whether the source was
// modified.
func (v Version) String() string {
	s := "pillion " + v.Version + " ("
	if v.Revision != "" && !strings.Contains(v.Version, v.Revision[:min(12, len(v.Revision))]) {
		s += "revision " + v.Revision + ", "
	}
	if v.Modified && !strings.HasSuffix(v.Version, "+dirty") {
		s += "modified, "
	}
	return s + v.Go + ", " + v.Platform + ")"
}
