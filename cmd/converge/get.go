package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/converge-engine/converge/intent/incarnation"
)

// newCmdGet groups the verbs whose output other programs read.
func newCmdGet(f *Factory) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get",
		Short:   "Show the contents of an incarnation",
		Long:    `Show the contents of an incarnation as JSON, for other programs.`,
		Example: `  converge config get assets shop --kind Service`,
	}
	cmd.AddCommand(newCmdGetAssets(f, nil))
	return cmd
}

type assetsOptions struct {
	f           *Factory
	application string
	incarnation int64 // 0: the newest
	kind        string
	labels      []string
	addon       string
	store       string
	watch       bool
}

// assetsPollInterval is the interval between checks for a newer incarnation.
const assetsPollInterval = 2 * time.Second

func newCmdGetAssets(f *Factory, runF func(context.Context, *assetsOptions) error) *cobra.Command {
	o := &assetsOptions{f: f}
	cmd := &cobra.Command{
		Use:   "assets [APP]",
		Short: "Print the assets of an incarnation as JSON",
		Long: `Print the assets of an incarnation: release channels, services, and the instances of
services in channels, each with an id, a kind, labels, a payload and the addons of a
service. The default is the newest incarnation. With --watch, one line of JSON is printed
for the newest incarnation, and another one for each newer incarnation. APP may be omitted
inside a directory that defines it.`,
		Example: `  converge config get assets shop --kind Instance --label tier=prod
  converge config get assets shop --addon example.com/oncall
  converge config get assets shop --incarnation 41
  converge config get assets shop --watch`,
		Args: argsFromUse,
		RunE: newRunE(o, runF, o.run, func(args []string) (err error) {
			o.application, err = f.application(args)
			return err
		}),
	}
	cmd.Flags().Int64Var(&o.incarnation, "incarnation", 0, "number of the incarnation (default: the newest)")
	cmd.Flags().StringVar(&o.kind, "kind", "", "only assets of this kind: "+kindsOfAssets())
	cmd.Flags().StringArrayVarP(&o.labels, "label", "l", nil, "only assets with this label, NAME=VALUE (repeatable)")
	cmd.Flags().StringVar(&o.addon, "addon", "", "only services with an addon of this type")
	cmd.Flags().StringVar(&o.store, "store", "", storeUsage)
	cmd.Flags().BoolVar(&o.watch, "watch", false, "also print each newer incarnation")
	return cmd
}

func kindsOfAssets() string {
	var names []string
	for _, kind := range incarnation.AssetKinds() {
		names = append(names, string(kind))
	}
	return strings.Join(names, ", ")
}

// assetsDocument is the output for one incarnation.
type assetsDocument struct {
	Application string              `json:"application"`
	Incarnation int64               `json:"incarnation"`
	Hash        string              `json:"hash"`
	Assets      []incarnation.Asset `json:"assets"`
}

func (o *assetsOptions) run(ctx context.Context) error {
	filter, err := o.filter()
	if err != nil {
		return err
	}
	last, reported := int64(0), ""
	for {
		found, err := o.read(ctx, last, filter)
		if err != nil && last == 0 {
			return err
		}
		if err != nil && err.Error() != reported { // a temporary outage
			reported = err.Error()
			o.f.note("%s", reported)
		}
		if found != nil && !o.watch {
			return o.f.screen().Document(found)
		}
		if found != nil {
			if err := o.f.screen().StreamDocument(found); err != nil {
				return err
			}
			last = found.Incarnation
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(assetsPollInterval):
		}
	}
}

// filter returns the filter for the selected assets.
func (o *assetsOptions) filter() (func(incarnation.Asset) bool, error) {
	if o.kind != "" && !slices.Contains(incarnation.AssetKinds(), incarnation.AssetKind(o.kind)) {
		return nil, fmt.Errorf("--kind %q: expected one of %s", o.kind, kindsOfAssets())
	}
	if o.watch && o.incarnation != 0 {
		return nil, fmt.Errorf("--incarnation %d cannot be combined with --watch", o.incarnation)
	}
	labels := map[string]string{}
	for _, label := range o.labels {
		name, value, ok := strings.Cut(label, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--label %q: expected NAME=VALUE", label)
		}
		labels[name] = value
	}
	return func(a incarnation.Asset) bool {
		return (o.kind == "" || string(a.Kind) == o.kind) && (o.addon == "" || a.HasAddon(o.addon)) && a.Has(labels)
	}, nil
}

// read reads the selected incarnation. It returns nil if none is newer than the last one.
func (o *assetsOptions) read(ctx context.Context, last int64, filter func(incarnation.Asset) bool) (*assetsDocument, error) {
	h, err := o.f.incarnations(ctx, o.application, o.store)
	if err != nil {
		return nil, err
	}
	defer h.Store.Close() // only read
	number := o.incarnation
	if number == 0 {
		number = h.Status.Newest
	}
	if number == last {
		return nil, nil //nolint:nilnil // there is nothing new
	}
	inc, err := h.Read(ctx, number)
	if err != nil {
		return nil, err
	}
	assets, err := inc.Assets()
	if err != nil {
		return nil, err
	}
	return &assetsDocument{o.application, number, inc.Hash(), slices.DeleteFunc(assets, func(a incarnation.Asset) bool { return !filter(a) })}, nil
}
