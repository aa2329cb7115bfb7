// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/pillion-dev/pillion/e2e/programs"
)

const (
	// StandIn is the image of the program standin: the app and the sidecars of the tests, and
	// the process that holds the namespaces of a pod.
	StandIn = "registry.example/standin:1"
	// NextStandIn is another image with the same program.
	NextStandIn = "registry.example/standin:2"
	// CrashingStandIn is an image whose program ends at once with an error.
	CrashingStandIn = "registry.example/standin:crash"
	// pillionName is the image of Pillion. The manifests name it with the tag of a release.
	pillionName = "ghcr.io/pillion-dev/pillion"

	imagesName = "images.tar"
)

// BuildImages writes a file for ctr with the images of Pillion, with each of the tags, and of
// StandIn.
func BuildImages(ctx context.Context, steps *programs.Steps, dir string, tags ...string) error {
	return steps.Do("the images of Pillion and of the stand-ins", func() error {
		root, err := programs.Root(ctx)
		if err != nil {
			return err
		}
		pillion, err := packPillion(ctx, root, dir)
		if err != nil {
			return err
		}
		standIn, err := buildStandIn(ctx, root, dir)
		if err != nil {
			return err
		}
		images := map[name.Tag]v1.Image{}
		for _, tag := range tags {
			if err := addTag(images, pillionName+":"+tag, pillion); err != nil {
				return err
			}
		}
		next, err := another(standIn, func(c *v1.Config) { c.Labels = map[string]string{"next": "true"} })
		if err != nil {
			return err
		}
		crashing, err := another(standIn, func(c *v1.Config) { c.Entrypoint = append(c.Entrypoint, "-crash") })
		if err != nil {
			return err
		}
		for _, after := range LateAfter() {
			late, err := another(standIn, func(c *v1.Config) { c.Entrypoint = append(c.Entrypoint, "-unready="+after) })
			if err != nil {
				return err
			}
			if err := addTag(images, LateStandIn(after), late); err != nil {
				return err
			}
		}
		if err := errors.Join(addTag(images, StandIn, standIn), addTag(images, NextStandIn, next), addTag(images, CrashingStandIn, crashing)); err != nil {
			return err
		}
		return tarball.MultiWriteToFile(filepath.Join(dir, imagesName), images)
	})
}

// LateAfter returns the times after which an image fails, see [LateStandIn].
func LateAfter() []string { return []string{"20s", "60s"} }

// LateStandIn returns an image whose program answers 503 after a time.
func LateStandIn(after string) string { return "registry.example/standin:late-" + after }

func addTag(images map[name.Tag]v1.Image, reference string, image v1.Image) error {
	tag, err := name.NewTag(reference)
	images[tag] = image
	return err
}

// programName is the name of Pillion's program in the folder of the node.
const programName = "image-pillion"

// packPillion makes the image of the Dockerfile.
func packPillion(ctx context.Context, root, dir string) (v1.Image, error) {
	recipe, err := programs.ReadRecipe(root)
	if err != nil {
		return nil, err
	}
	built, err := programs.Pillion(ctx, nil)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(dir, programName)
	if err := programs.LinkProgram(built, program); err != nil {
		return nil, err
	}
	return imageOf(program, recipe.Program, recipe.User)
}

func buildStandIn(ctx context.Context, root, dir string) (v1.Image, error) {
	binary := filepath.Join(dir, "image-standin")
	if err := goBuild(ctx, filepath.Join(root, "e2e", "node"), "CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o "+binary+" ./standin"); err != nil {
		return nil, err
	}
	return imageOf(binary, "/standin", "65532:65532")
}

func goBuild(ctx context.Context, dir, line string) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TARGETOS=linux", "TARGETARCH="+runtime.GOARCH)
	cmd.SysProcAttr = programs.ChildAttributes()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}

// imageOf returns an image with one file.
func imageOf(binary, entrypoint, user string) (v1.Image, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	header := &tar.Header{Name: strings.TrimPrefix(entrypoint, "/"), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(program))}
	if err := w.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := w.Write(program); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	packed, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, packed)
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(image, configOf(image, entrypoint, user))
}

// another returns an image with another configuration.
func another(image v1.Image, change func(*v1.Config)) (v1.Image, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	change(&config.Config)
	return mutate.ConfigFile(image, config)
}

func configOf(image v1.Image, entrypoint, user string) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config.Entrypoint, config.Config.User = []string{entrypoint}, user
	return config
}
