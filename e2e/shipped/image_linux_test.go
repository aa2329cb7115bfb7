// SPDX-License-Identifier: Apache-2.0

package shipped

import (
	"compress/gzip"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"sigs.k8s.io/yaml"
)

// maxImage is of the compressed layer: what a node pulls. It is 15 MB, of which controller-runtime and the types of all API groups are 4.
const maxImage = 17 << 20

// maxBinary is of the same layer unpacked: what a node stores.
const maxBinary = 48_000_000

// TestImage builds the image without a container runtime. The image is one file, which the
// Dockerfile's own command builds for each architecture. The file must be static and small, and
// must run without any other file.
func TestImage(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	dockerfile := string(text)
	command := regexp.MustCompile(`CGO_ENABLED=0 .*go build .*`).FindString(dockerfile)
	_, image, found := strings.Cut(dockerfile, "\nFROM scratch\n")
	user := deployedUser(t)
	if want := fmt.Sprintf("COPY --from=build /pillion /pillion\nUSER %s\nENTRYPOINT [\"/pillion\"]\n", user); command == "" || !found || image != want {
		t.Fatalf("the image is not made by go build, or not from scratch by\n%s", want)
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		t.Run(arch, func(t *testing.T) {
			root := t.TempDir()
			binary := filepath.Join(root, "pillion")
			cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Replace(command, "-o /pillion", "-o "+binary, 1))
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+arch)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			wantStatic(t, binary, machine)
			unpacked, packed := sizes(t, binary)
			t.Logf("%.1f MB, %.1f MB compressed", float64(unpacked)/1e6, float64(packed)/1e6)
			if packed > maxImage || unpacked >= maxBinary {
				t.Errorf("the image has %d bytes, %d compressed; want less than %d and at most %d", unpacked, packed, maxBinary, maxImage)
			}
			if runtime.GOOS == "linux" && runtime.GOARCH == arch {
				wantRunsAlone(t, root, user)
			}
		})
	}
}

// deployedUser is as whom the Deployment runs the image.
func deployedUser(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../manifests/base/40-deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					SecurityContext struct{ RunAsUser, RunAsGroup int }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	s := d.Spec.Template.Spec.SecurityContext
	return fmt.Sprintf("%d:%d", s.RunAsUser, s.RunAsGroup)
}

func wantStatic(t *testing.T, binary string, machine elf.Machine) {
	t.Helper()
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if f.Machine != machine || len(libraries) > 0 || f.Section(".interp") != nil {
		t.Errorf("it is for %s and needs %q and a loader: %t (%v)", f.Machine, libraries, f.Section(".interp") != nil, err)
	}
}

func sizes(t *testing.T, binary string) (unpacked, packed int64) {
	t.Helper()
	f, err := os.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var size counter
	z := gzip.NewWriter(&size)
	if unpacked, err = io.Copy(z, f); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return unpacked, int64(size)
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// wantRunsAlone runs /pillion as the user, where the root folder holds nothing else.
func wantRunsAlone(t *testing.T, root, user string) {
	t.Helper()
	var uid, gid int
	if _, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/pillion", "version")
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Chroot:      root,
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: os.Getgid(), Size: 1}},
	}
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if os.IsPermission(err) {
		t.Logf("not run: no user namespaces here: %v", err)
		return
	}
	if err != nil || !strings.Contains(string(out), "pillion") {
		t.Errorf("%v: %s", err, out)
	}
}
