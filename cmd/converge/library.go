package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/cmd/internal/show"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/explain"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/store"
)

func newCmdLibrary(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "library",
		Short: "Publish and list libraries of release channels and protections",
		Long: `Publish libraries: release channels and protections that applications import by name and
version instead of declaring them. The content of a version never changes.`,
		Example: `  converge config library publish libraries/org
  converge config library list`,
	}
	cmd.AddCommand(newCmdLibraryPublish(f, nil), newCmdLibraryList(f, nil), newCmdLibraryGet(f, nil))
	return cmd
}

type libraryOptions struct {
	f       *Factory
	dir     string
	name    string
	version int64
	store   string
	reason  string
	dryRun  bool
}

func newCmdLibraryPublish(f *Factory, runF func(context.Context, *libraryOptions) error) *cobra.Command {
	o := &libraryOptions{f: f}
	cmd := &cobra.Command{
		Use:   "publish [DIR]",
		Short: "Publish a library",
		Long: `Validate the library in a directory, print all errors, and publish it under its name and
version. Other content under the same version is refused; the same content changes
nothing. The rules of the installation define who may publish. No application changes:
each names the version that it imports.`,
		Example: `  converge config library publish libraries/org --dry-run
  converge config library publish libraries/org --reason "a freeze at the end of the year"`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.publish, parseDirArg(&o.dir)),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().StringVar(&o.reason, "reason", "", "reason, kept in the audit trail")
	cmd.Flags().BoolVar(&o.dryRun, "dry-run", false, "validate and print the digest; publish nothing (needs no server)")
	return cmd
}

func newCmdLibraryList(f *Factory, runF func(context.Context, *libraryOptions) error) *cobra.Command {
	o := &libraryOptions{f: f}
	cmd := &cobra.Command{
		Use:     "list [NAME]",
		Short:   "List published libraries",
		Long:    `List the versions of all libraries, or of one, oldest first: digest, age and author.`,
		Example: `  converge config library list org`,
		Args:    argsFromUse,
		RunE: newRunE(o, runF, o.list, func(args []string) error {
			o.name = first(append(args, "")...)
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func newCmdLibraryGet(f *Factory, runF func(context.Context, *libraryOptions) error) *cobra.Command {
	o := &libraryOptions{f: f}
	cmd := &cobra.Command{
		Use:   "get NAME VERSION DIR",
		Short: "Download a published library",
		Long: `Write the files of a library to a directory, from which applications can import it by path
where no store can be reached. A directory below one whose name begins with a dot may be
inside that of the application. Existing files are not overwritten.`,
		Example: `  converge config library get org 3 .libraries/org`,
		Args:    argsFromUse,
		RunE: newRunE(o, runF, o.get, func(args []string) (err error) {
			o.name, o.dir = args[0], args[2]
			if o.version, err = strconv.ParseInt(args[1], 10, 64); err != nil {
				return fmt.Errorf("library get: invalid version %q; expected an integer", args[1])
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	return cmd
}

func (o *libraryOptions) publish(ctx context.Context) error {
	root, err := os.OpenRoot(o.dir) // nothing outside is read, not even through a link
	if err != nil {
		return fmt.Errorf("library %s: %w", o.dir, err)
	}
	defer root.Close() // only read
	content, err := compile.Library(root.FS())
	if err != nil {
		return o.f.problems(err, "; nothing published")
	}
	named := protocol.LibraryName{Name: content.Name, Version: int64(content.Version), Digest: content.Digest()}
	what := fmt.Sprintf("library %s %d", named.Name, named.Version)
	if o.dryRun {
		if o.f.structured() {
			return o.f.screen().Document(named)
		}
		return o.f.screen().Lines(fmt.Sprintf("not published: %s is valid: %s", what, named.Digest))
	}
	at, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer at.Close() // all is written
	if _, err := at.PutLibraryContent(ctx, content); err != nil {
		return err
	}
	act := o.f.newAct(o.reason)
	into := installationScope()
	into.name = what
	return o.f.actOnScope(ctx, into, protocol.PublishLibrary, act, protocol.LibraryRequest{RequestMeta: act, LibraryName: named})
}

// open opens the store of the libraries. It belongs to the installation, so any application can name it.
func (o *libraryOptions) open(ctx context.Context) (*store.Store, error) {
	at, err := o.f.storeOf(ctx, "", "", o.store)
	if err != nil {
		return nil, err
	}
	if first(o.store, o.f.Env("CONVERGE_STORE")) == "" {
		if at, err = o.f.stores("").Readable(at); err != nil {
			return nil, errors.New("no application reports its store; name it with --store or CONVERGE_STORE")
		}
	}
	return store.Open(ctx, at)
}

func (o *libraryOptions) list(ctx context.Context) error {
	at, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer at.Close() // only read
	known, err := at.Libraries(ctx)
	if err != nil {
		return err
	}
	if o.name != "" && known[o.name] == nil {
		return fmt.Errorf("no library %s%s", o.name, read.Suggestion(o.name, entities.SortedKeys(known)))
	}
	all := []protocol.Library{}
	for _, name := range entities.SortedKeys(known) {
		for _, version := range known[name] {
			if o.name != "" && o.name != name {
				continue
			}
			l, err := at.Library(ctx, name, version)
			if err != nil {
				return err
			}
			all = append(all, l)
		}
	}
	if o.f.structured() {
		return o.f.screen().Document(all)
	}
	t := show.Table{Header: []string{"NAME", "VERSION", "DIGEST", "AGE", "BY"}}
	for _, l := range all {
		t.Rows = append(t.Rows, []string{l.Name, strconv.FormatInt(l.Version, 10), l.Digest, explain.Duration(o.f.Now().Sub(l.At)), explain.Who(l.By)})
	}
	return o.f.screen().Table(t)
}

func (o *libraryOptions) get(ctx context.Context) error {
	at, err := o.open(ctx)
	if err != nil {
		return err
	}
	defer at.Close() // only read
	content, err := at.Imports(ctx)(o.name, int(o.version))
	if err != nil {
		return err
	}
	if _, problems := config.ParseLibrary(content, o.name); len(problems) > 0 { // it also checks the names of files
		return o.f.problems(problems, "; nothing written")
	}
	if err := os.MkdirAll(o.dir, 0o755); err != nil { //nolint:gosec // as what is beside it in a repository
		return fmt.Errorf("library get: %w", err)
	}
	root, err := os.OpenRoot(o.dir)
	if err != nil {
		return fmt.Errorf("library get: %w", err)
	}
	defer root.Close() // each file is closed
	for _, name := range entities.SortedKeys(content.Files) {
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			_, err = f.WriteString(content.Files[name])
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return fmt.Errorf("library get: %w", err)
		}
	}
	return o.f.screen().Lines(fmt.Sprintf("library %s %d is in %s: import it by path: %s", o.name, o.version, o.dir, filepath.ToSlash(o.dir)))
}
