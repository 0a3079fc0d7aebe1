package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/client/installation"
	"github.com/converge-engine/converge/client/publish"
	"github.com/converge-engine/converge/intent/store"
)

// localServer is the value of `--from` that selects the server and the store of converge dev in the working directory.
const localServer = "dev"

func newCmdAdmin(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Move the whole installation, back it up, or set its rules",
		Long: `Take the whole installation, all applications and services with what is in flight, to
another store and another Temporal namespace; make a backup of it; or say who may do what
with runtimes and with everything.`,
		Example: `  converge admin export --from dev | converge admin import --profile prod --store s3://releases
  converge admin export backup.tar.gz`,
	}
	cmd.AddCommand(newCmdExport(f, nil), newCmdImport(f, nil), newCmdRekey(f, nil), newCmdRules(f, nil))
	return cmd
}

type exportOptions struct {
	f     *Factory
	from  string
	store string
	file  string
	yes   bool
}

func newCmdExport(f *Factory, runF func(context.Context, *exportOptions) error) *cobra.Command {
	o := &exportOptions{f: f}
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Write the whole installation to an archive",
		Long: `Write the whole installation to an archive, FILE or the standard output: what was
released, approved, paused and pinned, what waits, what each version means, and who did
what. It is read from the store, at any time, and nothing notices.

With --from it is a move: the installation ends where it is, and goes on where the archive
is imported. Nothing is applied from there any more, the workflows are ended, and what they
had accepted comes along. --from dev is converge dev of the working directory; any other
name is a profile of Temporal's configuration file.

It holds what the store holds: keep it where only those can read it who may read that.`,
		Example: `  converge admin export backup.tar.gz
  converge admin export --from dev | converge admin import --profile prod --store s3://releases`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			if o.from != "" && o.f.conn.profile != "" {
				return errors.New("admin export: --from and --profile both say where it is; expected one")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.from, "from", "", "end it there and take it along: dev, or a profile")
	cmd.Flags().StringVar(&o.store, "store", "", "its store: a URL or a directory (CONVERGE_STORE; default: .converge/store of the directory's application)")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "do not ask before ending it")
	return cmd
}

func (o *exportOptions) run(ctx context.Context) error {
	if o.file == "" && o.f.screen().TTY {
		return errors.New("admin export: an archive is no text for a terminal; name a file, or: converge admin export … | converge admin import …")
	}
	location, err := o.where()
	if err != nil {
		return err
	}
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, location)
	if err != nil {
		return err
	}
	defer s.Close() // all writes are complete
	c, namespace := api.Temporal()
	if o.from != "" {
		question := fmt.Sprintf("end the installation of %s in the namespace %s, to go on elsewhere", s.URL(), namespace)
		if err := o.f.confirm(ctx, o.yes, question); err != nil {
			return err
		}
	}
	export := installation.Export{Client: c, Payloads: o.f.conn.payloads, Namespace: namespace, Store: s, By: o.f.by(), Move: o.from != "", Said: o.f.note}
	out, err := o.write(ctx, export)
	if err != nil {
		return fmt.Errorf("admin export: %w", err)
	}
	o.f.note("exported installation %s: %d workflows, %d messages that no checkpoint has", out.Installation.ID, out.Workflows, out.Messages)
	for id, why := range out.Damaged {
		o.f.note("%s is left out: %v", id, why)
	}
	if o.from != "" {
		o.f.note("what ran there can be stopped; if the archive is lost, it goes on with: converge worker --take-over --store %s", s.URL())
	}
	if len(out.Damaged) > 0 {
		return exit(exitFailed)
	}
	return nil
}

// where returns the location of the store. It also sets the connection to the server of --from.
func (o *exportOptions) where() (string, error) {
	location := first(o.store, o.f.Env("CONVERGE_STORE"))
	switch o.from {
	case "":
	case localServer:
		o.f.conn.local = true
		location = o.store
	default:
		o.f.conn.profile = o.from
	}
	if location != "" {
		return location, nil
	}
	dir, err := o.f.WorkDir()
	if err != nil {
		return "", err
	}
	_, root := publish.FindApplication(dir)
	if root == "" {
		return "", errors.New("admin export: no store; name one with --store or CONVERGE_STORE, or go to the directory that converge dev follows")
	}
	return filepath.Join(root, ".converge", "store"), nil
}

// write writes the archive. An existing file keeps its content until the new archive is complete.
func (o *exportOptions) write(ctx context.Context, e installation.Export) (out installation.Exported, err error) {
	if o.file == "" {
		return e.Write(ctx, o.f.Raw)
	}
	file, err := os.CreateTemp(filepath.Dir(o.file), "."+filepath.Base(o.file)+".*")
	if err != nil {
		return out, err
	}
	defer os.Remove(file.Name()) // no longer exists after the rename
	out, err = e.Write(ctx, file)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = os.Rename(file.Name(), o.file)
	}
	return out, err
}

type importOptions struct {
	f       *Factory
	store   string
	file    string
	restore bool
}

func newCmdImport(f *Factory, runF func(context.Context, *importOptions) error) *cobra.Command {
	o := &importOptions{f: f}
	cmd := &cobra.Command{
		Use:   "import [FILE]",
		Short: "Go on with an installation from its archive",
		Long: `Fill an empty store from an archive, FILE or the standard input, and make it that of a
namespace where nothing of Converge runs yet. Workers that are started on it look after
everything within a minute. The installation keeps its id; its epoch rises, so that what
may still run elsewhere is refused.

With --restore the archive may be a backup, of an installation that is lost. What was done
since is not known then: everything comes back paused. Where only the store is lost, and the
workflows still run, they go on with what they know.`,
		Example: `  converge admin import --restore --store s3://releases backup.tar.gz
  converge admin export --from dev | converge admin import --profile prod --store s3://releases`,
		Args: asUsed,
		RunE: running(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "the store to fill: a URL or a directory (CONVERGE_STORE)")
	cmd.Flags().BoolVar(&o.restore, "restore", false, "the archive is a backup of what is lost")
	return cmd
}

func (o *importOptions) run(ctx context.Context) error {
	location := first(o.store, o.f.Env("CONVERGE_STORE"))
	if location == "" {
		return errors.New("admin import: no store; name the one to fill with --store or CONVERGE_STORE")
	}
	in, err := o.open()
	if err != nil {
		return err
	}
	defer in.Close()
	api, err := o.f.client(ctx)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, location)
	if err != nil {
		return err
	}
	defer s.Close() // all writes are complete
	c, namespace := api.Temporal()
	out, err := installation.Import{Client: c, Namespace: namespace, Store: s, By: o.f.by(), Restore: o.restore}.Read(ctx, in)
	if err != nil {
		return fmt.Errorf("admin import: %w", err)
	}
	if o.f.json() {
		return o.f.screen().JSON(out)
	}
	o.f.note("imported installation %s of %s by %s: %d workflows, epoch %d, namespace %s", out.Installation.ID,
		out.Header.At.Local().Format("2006-01-02 15:04 MST"), out.Header.By, len(out.Workflows), out.Installation.Epoch, namespace)
	if out.InPlace {
		o.f.note("the workflows of the namespace go on with what they know")
	} else {
		if !out.Installation.BackupOf.IsZero() {
			o.f.note("everything is paused, since what was done after the backup is not known here: look, then converge resume --all")
		}
		o.f.note("they are looked after again within a minute of: converge worker --store %s", s.URL())
	}
	return nil
}

func (o *importOptions) open() (io.ReadCloser, error) {
	if o.file != "" {
		return os.Open(o.file)
	}
	if o.f.AskTTY {
		return nil, errors.New("admin import: no archive; name its file, or: converge admin export … | converge admin import …")
	}
	return io.NopCloser(o.f.In), nil
}
