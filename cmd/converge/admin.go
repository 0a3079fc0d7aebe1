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
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/outcome"
	"github.com/converge-engine/converge/intent/store"
)

// localServer is the value of `--from` that selects the server and the store of converge dev in the working directory.
const localServer = "dev"

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
		Short: "Export the installation to an archive",
		Long: `Write the installation to an archive, FILE or standard output: releases, approvals, pauses
and pins, waiting releases, the content of each version, and the audit trail. It reads the
store, at any time, and disturbs nothing.

With --from, the export is a move: the installation stops where it is, and continues where
the archive is imported. Nothing is applied from the old store any more, its workflows
end, and what they had accepted is in the archive. --from dev means converge dev of the
working directory, at its default port or at --address; any other name is a profile of
Temporal's configuration file.

The archive contains all that the store contains: restrict access to it in the same way.`,
		Example: `  converge admin export backup.tar.gz
  converge admin export --from dev | converge admin import --profile prod --store s3://releases`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			if o.from != "" && o.f.conn.Profile != "" {
				return errors.New("admin export: expected only one of --from and --profile")
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.from, "from", "", "move the installation away from here: dev, or a profile")
	cmd.Flags().StringVar(&o.store, "store", "", "store of the installation: a URL or a directory (CONVERGE_STORE; default: .converge/store of the directory's application)")
	cmd.Flags().BoolVarP(&o.yes, "yes", "y", false, "skip the confirmation")
	return cmd
}

func (o *exportOptions) run(ctx context.Context) error {
	if o.file == "" && o.f.screen().TTY {
		return errors.New("admin export: an archive cannot be written to a terminal; name a file, or: converge admin export … | converge admin import …")
	}
	location, err := o.storeLocation()
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
		question := fmt.Sprintf("stop the installation of %s in the namespace %s, to continue elsewhere", s.URL(), namespace)
		if err := o.f.confirm(ctx, o.yes, question); err != nil {
			return err
		}
	}
	export := installation.Export{Client: c, Payloads: o.f.conn.Payloads, Namespace: namespace, Store: s, By: o.f.by(), Move: o.from != "", Log: o.f.note}
	out, err := o.write(ctx, export)
	if err != nil {
		return fmt.Errorf("admin export: %w", err)
	}
	o.f.note("exported installation %s: %d workflows, %d messages newer than their checkpoints", out.Installation.ID, out.Workflows, out.Messages)
	for id, why := range out.Damaged {
		o.f.note("%s is omitted: %v", id, why)
	}
	if o.from != "" {
		o.f.note("its workers can be stopped; if the archive is lost, resume with: converge worker%s --take-over --store %s", o.f.connectionFlags(), entities.ShellWord(s.URL()))
	}
	if len(out.Damaged) > 0 {
		return exit(outcome.Failed)
	}
	return nil
}

// storeLocation returns the location of the store. It also sets the connection to the server of --from.
func (o *exportOptions) storeLocation() (string, error) {
	location := first(o.store, o.f.Env("CONVERGE_STORE"))
	switch o.from {
	case "":
	case localServer:
		o.f.conn.Local = true
		if address := o.f.Env("TEMPORAL_ADDRESS"); address != "" && o.f.conn.Address == "" {
			o.f.note("TEMPORAL_ADDRESS (%s) is not used: --from dev is the server of converge dev at its default port; --address names another", address)
		}
		location = o.store
	default:
		o.f.conn.Profile = o.from
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
		return "", errors.New("admin export: no store; name one with --store or CONVERGE_STORE, or run this in the directory of converge dev")
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

// connectionFlags are the flags of this command that say which server it means, for a command that is printed; "" or with a leading blank.
func (f *Factory) connectionFlags() (flags string) {
	for _, flag := range [][2]string{{"profile", f.conn.Profile}, {"address", f.conn.Address}, {"namespace", f.conn.Namespace}} {
		if flag[1] != "" {
			flags += " --" + flag[0] + " " + entities.ShellWord(flag[1])
		}
	}
	return flags
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
		Short: "Import an installation from an archive",
		Long: `Fill an empty store from an archive, FILE or standard input, and bind it to a namespace in
which no Converge workflow runs yet. Workers that are started on it resume everything
within a minute. The installation keeps its id; its epoch rises, so that requests of the
old one are refused.

With --restore, the archive may be a backup of a lost installation. What happened after
the backup is unknown: everything is restored paused. If only the store is lost and the
workflows still run, they continue with their own state.`,
		Example: `  converge admin import --restore --store s3://releases backup.tar.gz
  converge admin export --from dev | converge admin import --profile prod --store s3://releases`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&o.store, "store", "", "store to fill: a URL or a directory (CONVERGE_STORE)")
	cmd.Flags().BoolVar(&o.restore, "restore", false, "the archive is a backup of a lost installation")
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
	if o.f.structured() {
		return o.f.screen().Document(out)
	}
	o.f.note("imported installation %s of %s by %s: %d workflows, epoch %d, namespace %s", out.Installation.ID,
		out.Header.At.Local().Format("2006-01-02 15:04 MST"), out.Header.By, len(out.Workflows), out.Installation.Epoch, namespace)
	if out.InPlace {
		o.f.note("the running workflows of the namespace continue with their own state")
	} else {
		if !out.Installation.BackupOf.IsZero() {
			o.f.note("everything is paused, since changes after the backup are unknown: check, then run converge resume --all")
		}
		o.f.note("services are managed again within a minute of: converge worker%s --store %s", o.f.connectionFlags(), entities.ShellWord(s.URL()))
	}
	return nil
}

func (o *importOptions) open() (io.ReadCloser, error) {
	if o.file != "" {
		return os.Open(o.file)
	}
	if o.f.CanPrompt {
		return nil, errors.New("admin import: no archive; name its file, or: converge admin export … | converge admin import …")
	}
	return io.NopCloser(o.f.In), nil
}
