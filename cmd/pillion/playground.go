// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pillion-dev/pillion/cmd/pillion/cli"
	"github.com/pillion-dev/pillion/cmd/pillion/cluster"
)

// playgroundOptions are the flags of playground.
type playgroundOptions struct {
	files     string
	templates []string
	cluster   cluster.Options
	port      int
}

func newPlayground() *cobra.Command {
	o := &playgroundOptions{}
	cmd := &cobra.Command{
		Use:         "playground",
		Short:       "Try templates on pods in a browser",
		Annotations: cli.FailsIf("it cannot start, or fails"),
		Long: `Playground serves a page on which you edit templates and pods. The page shows at once
what Pillion adds to a pod, and why. It runs the engine in the browser: what you type
does not leave it.

Without --files, playground looks for the folder playground next to its own executable.
The archives of a release contain this folder. In a clone, make playground builds it
into bin.

With --templates, the page begins with these templates. With --kubeconfig or --context,
it begins with those that Pillion uses in the cluster. Playground only reads there, and
only when it starts.

Playground listens on 127.0.0.1 only. The link that it prints contains a random token.
Without the token, no other user of this machine, and no page in a browser, can read
your templates.`,
		Example: `  pillion playground

  # In a clone.
  make playground build && bin/pillion playground

  # Begin with your templates.
  pillion playground -t templates/

  # Begin with the templates of a cluster.
  pillion playground --kubeconfig ~/.kube/config`,
		Args: cli.NoArguments,
		PreRunE: func(*cobra.Command, []string) error {
			if len(o.templates) > 0 && o.cluster.Selects() {
				return errors.New("--templates and --kubeconfig or --context exclude each other")
			}
			if o.port < 0 || o.port > 65535 {
				return errors.New("--local-port must be 0 to 65535")
			}
			return nil
		},
		RunE: cli.Action(func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return o.run(ctx, cmd.InOrStdin(), cmd.OutOrStdout())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&o.files, "files", "", "serve the page in this `FOLDER` (default: playground, next to the executable)")
	f.StringSliceVarP(&o.templates, "templates", "t", nil, "begin with the templates in this file or folder (`PATH`), or - for standard input; may be repeated")
	f.StringSliceVarP(&o.templates, "filename", "f", nil, "like --templates (`PATH`); may be repeated")
	f.IntVar(&o.port, "local-port", 0, "listen on this `PORT` (default: a free one)")
	o.cluster.Flags(cmd)
	return cmd
}

func (o *playgroundOptions) run(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	files, err := o.pageFolder()
	if err != nil {
		return err
	}
	own, err := o.ownTemplates(ctx, stdin)
	if err != nil {
		return err
	}
	examples, err := withOwn(filepath.Join(files, examplesFile), own)
	if err != nil {
		return err
	}
	var listening net.ListenConfig
	l, err := listening.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return err
	}
	page := newPage(l.Addr().String(), os.DirFS(files), examples)
	fmt.Fprintf(stdout, "The playground is at http://%s/%s/\nCtrl-C ends it.\n", page.host, page.token)
	server := &http.Server{Handler: page, ReadHeaderTimeout: pageTimeout, ReadTimeout: pageTimeout}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// pageFolder returns the folder with the page.
func (o *playgroundOptions) pageFolder() (string, error) {
	folder := o.files
	if folder == "" {
		exe, err := os.Executable()
		if err == nil {
			exe, err = filepath.EvalSymlinks(exe) // krew links the program
		}
		if err != nil {
			return "", err
		}
		folder = filepath.Join(filepath.Dir(exe), "playground")
	}
	if _, err := os.Stat(filepath.Join(folder, "index.html")); err != nil {
		return "", fmt.Errorf("the folder %s has no page; unpack the whole archive of a release, build the page with make playground in a clone, or name another folder with --files", folder)
	}
	return folder, nil
}

// ownTemplates returns the templates to begin with as YAML, or "".
func (o *playgroundOptions) ownTemplates(ctx context.Context, stdin io.Reader) (string, error) {
	if !o.cluster.Selects() {
		return textOfTemplates(stdin, o.templates)
	}
	c, err := o.cluster.Connect()
	if err != nil {
		return "", err
	}
	return c.TemplateText(ctx)
}

// withOwn returns the examples of the menu in a file, with the user's own templates first.
func withOwn(file, own string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil || own == "" {
		return data, err
	}
	var all []map[string]string
	if err := json.Unmarshal(data, &all); err != nil || len(all) == 0 {
		return nil, fmt.Errorf("%s has no examples; build the page again with make playground", file)
	}
	first := map[string]string{"name": "your templates", "templates": own, "manifest": all[0]["manifest"], "namespaceLabels": all[0]["namespaceLabels"]}
	return json.Marshal(append([]map[string]string{first}, all...))
}
