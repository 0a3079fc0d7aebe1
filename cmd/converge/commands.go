package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/entities/spelling"
)

// This file gives each command its place: what people use every day is at the top, the rest is under the noun that it acts on.

//go:generate go test -count=1 -run TestCommandPages . -update

func addCommands(f *Factory, root *cobra.Command) {
	root.AddGroup(&cobra.Group{ID: "release", Title: "Releases:"}, &cobra.Group{ID: "gate", Title: "Approve, pause and roll back:"},
		&cobra.Group{ID: "see", Title: "Inspect:"}, &cobra.Group{ID: "noun", Title: "Act on:"}, &cobra.Group{ID: "run", Title: "Run:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("release", newCmdRelease(f, nil), newCmdPlan(f, nil), newCmdSimulate(f, nil), newCmdWait(f, nil), newCmdCancel(f, nil), newCmdRetry(f, nil))
	add("gate", newCmdApprovals(f, nil), newCmdApprove(f, nil), newCmdReject(f, nil), newCmdBypass(f, nil), newCmdPause(f, nil), newCmdResume(f, nil),
		newCmdRollback(f, nil), newCmdRestart(f, nil), newCmdAdopt(f, nil), newCmdReturn(f, nil), newCmdPromote(f, nil), newCmdAbort(f, nil))
	add("see", newCmdStatus(f, nil), newCmdExplain(f, nil), newCmdHistory(f, nil), newCmdLogs(f, nil))
	add("noun", newCmdConfig(f), newCmdChannel(f), newCmdRun(f), newCmdRuntime(f), newCmdReport(f), newCmdAdmin(f))
	add("run", newCmdDev(f, nil), newCmdWorker(f, nil), newCmdServe(f, nil), newCmdLogin(f, nil), newCmdLogout(f, nil), newCmdVersion(f, nil))
	refuseUnknown(root)
	nameChannelByFlag(root)
	addCompletion(f, root)
}

// refuseUnknown lets a command that only groups others refuse a word that is none of them; cobra would print the help, and succeed.
func refuseUnknown(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		refuseUnknown(c)
	}
	if cmd.Runnable() {
		return
	}
	cmd.Args, cmd.DisableFlagsInUseLine = cobra.ArbitraryArgs, true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
}

// unknownCommand names the commands that were probably meant: those of that name anywhere, or of a similar name here.
func unknownCommand(cmd *cobra.Command, word string) error {
	meant := commandsOf(cmd.Root(), word)
	if len(meant) == 0 {
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		for _, name := range spelling.Closest(word, names) {
			meant = append(meant, cmd.CommandPath()+" "+name)
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("unknown command %q for %q; see: %s --help", word, cmd.CommandPath(), cmd.CommandPath())
	}
	return fmt.Errorf("unknown command %q for %q; did you mean: %s?", word, cmd.CommandPath(), strings.Join(meant, ", or: "))
}

// commandsOf returns the paths of the commands of a name, or of what other tools call by it.
func commandsOf(cmd *cobra.Command, word string) (paths []string) {
	for _, c := range cmd.Commands() {
		if c.Name() == word || slices.Contains(c.SuggestFor, word) {
			paths = append(paths, c.CommandPath())
		}
		paths = append(paths, commandsOf(c, word)...)
	}
	return paths
}

func newCmdConfig(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Configurations: create, check, publish, compare",
		Long: `Create, check and publish the configuration of an application. Each publication is an
incarnation, which never changes; the services of the application move to the newest one.`,
		Example: `  converge config validate examples/hello
  converge config publish examples/hello
  converge config diff shop 41 42`,
	}
	cmd.AddCommand(newCmdInit(f, nil), newCmdValidate(f, nil), newCmdCompile(f, nil), newCmdPublish(f, nil), newCmdWatch(f, nil), newCmdSet(f, nil),
		newCmdDiff(f, nil), newCmdIncarnations(f, nil), newCmdGet(f), newCmdLibrary(f), newCmdLock(f, nil), newCmdSchema(f),
		newCmdPinIncarnation(f, nil), newCmdUnpinIncarnation(f, nil), newCmdUnmanage(f, nil), newCmdManage(f, nil))
	return cmd
}

func newCmdChannel(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "channel",
		Short: "A service in a release channel: pin, refresh, delete",
		Long:  "Pin a service in a release channel to a version, observe it now, or delete what runs there.",
		Example: `  converge channel pin shop/web prod-eu v7 --reason "printing"
  converge channel delete shop/web canary --dry-run`,
	}
	cmd.AddCommand(newCmdPin(f, nil), newCmdUnpin(f, nil), newCmdRefresh(f, nil), newCmdDelete(f, nil))
	return cmd
}

func newCmdRun(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Plans of an application's services: preview, start, follow",
		Long: `Preview, start and follow the plan of a release channel: services are deployed in the order
of their requirements, and then integrated.`,
		Example: `  converge run plan home
  converge run start home production --wait
  converge run show home production --watch`,
	}
	cmd.AddCommand(newCmdRunPlan(f, nil), newCmdRunStart(f, nil), newCmdRunShow(f, nil), newCmdCaptured(f, nil))
	return cmd
}

func newCmdRuntime(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Runtimes: pause, drain, restore",
		Long:  "Stop applying to a runtime, such as a cluster, or empty it for maintenance and restore it.",
		Example: `  converge runtime pause eks-eu --reason "cluster upgrade"
  converge runtime drain eks-eu --dry-run`,
	}
	cmd.AddCommand(newCmdRuntimePause(f, nil), newCmdRuntimeResume(f, nil), newCmdDrain(f, nil), newCmdRestore(f, nil))
	return cmd
}

func newCmdReport(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Reports from the history: timeline, delivery metrics",
		Long:  "Report what happened, from the history: a chart of the releases, or the four DORA metrics.",
		Example: `  converge report timeline shop/web
  converge report delivery shop --since 90d`,
	}
	cmd.AddCommand(newCmdTimeline(f, nil), newCmdDelivery(f, nil))
	return cmd
}

func newCmdAdmin(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "The installation: diagnose, back up, move, configure",
		Long: `Diagnose the installation; move it, with all applications, services and releases in flight,
to another store and another Temporal namespace; back it up; or set who may do what with
runtimes and the whole installation.`,
		Example: `  converge admin doctor
  converge admin export backup.tar.gz
  converge admin export --from dev | converge admin import --profile prod --store s3://releases`,
	}
	cmd.AddCommand(newCmdDoctor(f, nil), newCmdStore(f), newCmdSearchAttributes(f, nil), newCmdRekey(f, nil), newCmdRules(f, nil), newCmdExport(f, nil), newCmdImport(f, nil),
		newCmdAdminWorker(f), newCmdCodecServer(f, nil), newCmdAcceptance(f, nil))
	return cmd
}
