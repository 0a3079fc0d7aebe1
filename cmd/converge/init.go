package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/importer"
)

//go:embed skeleton
var skeleton embed.FS

type initOptions struct {
	f    *Factory
	dir  string
	name string

	from, cluster, region, role, access string
}

func newCmdInit(f *Factory, runF func(context.Context, *initOptions) error) *cobra.Command {
	o := &initOptions{f: f}
	cmd := &cobra.Command{
		Use:   "init [DIR]",
		Short: "Create an application, or import an existing one",
		Long: `Create converge.yaml and a custom runtime of a few lines, which work as they are.

With --from ecs, import what runs on an Amazon ECS cluster instead, unchanged: adopting it
registers and rolls nothing. With --from meta, import the meta.yml in each subdirectory:
what its service requires and feeds, as a plan. With --from helm, kustomize, manifests,
argocd or flux, import what the files of the directory deploy to Kubernetes: environments
become release channels, existing objects are adopted, charts of repositories are fetched
and locked, and what cannot be imported is listed. With --access read, Converge only
reports what it would apply there, and writes nothing. Existing files are not overwritten.`,
		Example: `  converge config init shop && cd shop && converge dev
  converge config init shop --from ecs --cluster prod --region eu-west-1
  converge config init services --from meta
  converge config init deploy --from argocd --access read`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, parseDirArg(&o.dir)),
	}
	cmd.Flags().StringVar(&o.from, "from", "", "import from: ecs, meta, helm, kustomize, manifests, argocd or flux")
	cmd.Flags().StringVar(&o.access, "access", "write", "with --from a cluster or what is deployed to one: whether Converge may write there (write, read)")
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "with --from ecs: name of the cluster")
	cmd.Flags().StringVar(&o.region, "region", "", "with --from ecs: region of the cluster")
	cmd.Flags().StringVar(&o.role, "role-arn", "", "with --from ecs: role to assume, now and by the workers")
	cmd.Flags().StringVar(&o.name, "name", "", "name of the application (default: that of the directory)")
	return cmd
}

func (o *initOptions) run(ctx context.Context) error {
	if err := o.checkFlags(); err != nil {
		return err
	}
	switch o.from {
	case "":
		return o.fromSkeleton()
	case "ecs":
		return o.fromECS(ctx)
	case "meta":
		return o.fromMeta()
	}
	return o.fromFiles(ctx)
}

// checkFlags rejects values, and flags that belong to another import.
func (o *initOptions) checkFlags() error {
	switch {
	case o.from != "" && o.from != "ecs" && o.from != "meta" && !importer.Tool(o.from).Known():
		return fmt.Errorf("--from %q: expected ecs, meta, helm, kustomize, manifests, argocd or flux", o.from)
	case o.access != "read" && o.access != "write":
		return fmt.Errorf("--access %q: expected write or read", o.access)
	case o.access == "read" && (o.from == "" || o.from == "meta"):
		return errors.New("--access read requires --from ecs, helm, kustomize, manifests, argocd or flux")
	case o.cluster+o.region+o.role != "" && o.from != "ecs":
		return errors.New("--cluster, --region and --role-arn require --from ecs")
	}
	return nil
}

// fromSkeleton writes a first application with a custom runtime.
func (o *initOptions) fromSkeleton() error {
	name, err := o.applicationName()
	if err != nil {
		return err
	}
	entries, err := fs.ReadDir(skeleton, "skeleton")
	if err != nil {
		return err
	}
	if err := o.refuseOverwriting(entries); err != nil {
		return err
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := o.write(e.Name(), name); err != nil {
			return err
		}
	}
	return o.f.screen().Lines(
		"application "+name+" in "+o.dir,
		"next: converge config validate "+o.dir+", then converge dev "+o.dir)
}

// applicationName returns the given name, or one derived from the directory's name.
func (o *initOptions) applicationName() (string, error) {
	if o.name != "" {
		return o.name, checkName("an application", o.name)
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return "", err
	}
	name := importer.NameOf(filepath.Base(dir))
	if !connection.IsName(name) {
		name = "app"
	}
	return name, nil
}

func (o *initOptions) refuseOverwriting(entries []fs.DirEntry) error {
	found, _ := filepath.Glob(filepath.Join(o.dir, "*.converge.yaml"))
	for _, e := range entries {
		path := filepath.Join(o.dir, e.Name())
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			found = append(found, path)
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("init %s: %s exists already; nothing written", o.dir, found[0])
	}
	return nil
}

// write writes one file of the skeleton into the directory, and fills in the application's name.
func (o *initOptions) write(file, application string) error {
	data, err := skeleton.ReadFile("skeleton/" + file)
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(file, ".sh") {
		mode = 0o755
	}
	text := strings.ReplaceAll(string(data), "APPLICATION", application)
	out, err := os.OpenFile(filepath.Join(o.dir, file), os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = out.WriteString(text)
	return errors.Join(err, out.Close())
}
