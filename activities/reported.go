package activities

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/store"
	"github.com/converge-engine/converge/runtimes"
)

// This file stores the values that extensions and plan steps report (A21, E15), and fills them in where they are referenced. A reference
// uses the values of the same full version, or of the same plan, and of the same release channel.

// filler replaces references to reported values.
type filler struct {
	a              *Activities
	of             store.Report // without the extension
	keepUnresolved bool         // missing values keep their reference
	// addresses are the addresses of a plan's targets.
	addresses map[string]string
	read      map[string]entities.Reported
	used      map[string]string
	err       error
}

// versionFiller returns a filler with the values that the extensions of a service reported for a full version.
func (a *Activities) versionFiller(application, service, channel, fullVersion string) *filler {
	return &filler{a: a, of: store.Report{Application: application, Service: service, Channel: channel, Of: fullVersion}}
}

// stepFiller returns a filler with the values that the steps of a plan reported.
func (a *Activities) stepFiller(ref protocol.PlanRef) *filler {
	return a.versionFiller(ref.Application, planService, ref.Channel, ref.Name)
}

// text replaces the references in a text. The first missing value sets the filler's error.
func (f *filler) text(ctx context.Context, text string) string {
	return entities.WithReported(text, func(name string) string {
		value, err := f.value(ctx, name)
		if err != nil && f.keepUnresolved {
			return "${{ " + name + " }}"
		}
		if f.err == nil {
			f.err = err
		}
		if f.used == nil {
			f.used = map[string]string{}
		}
		f.used[name] = value
		return value
	})
}

func (f *filler) value(ctx context.Context, name string) (string, error) {
	group, key, _ := strings.Cut(name, ".")
	if group == "addresses" {
		if address := f.addresses[key]; address != "" {
			return address, nil
		}
		return "", fmt.Errorf("the address of %s is unknown", key)
	}
	extension, output, _ := strings.Cut(key, ".")
	reported, err := f.reportOf(ctx, extension)
	if err != nil {
		return "", err
	}
	text, found := reported.Outputs[output]
	if !found {
		return "", runtimes.Permanent(fmt.Errorf("extension %s did not report %s for %s in %s; it reported %s",
			extension, output, f.of.Of, f.of.Channel, entities.FirstNames(entities.SortedKeys(reported.Outputs))))
	}
	return text, nil
}

// reportOf returns the values that an extension reported.
func (f *filler) reportOf(ctx context.Context, extension string) (entities.Reported, error) {
	if reported, known := f.read[extension]; known {
		return reported, nil
	}
	of := f.of
	of.Extension = extension
	record, err := f.a.Store.Report(ctx, of)
	if store.IsNotFound(err) {
		return entities.Reported{}, runtimes.Permanent(fmt.Errorf("extension %s reported nothing for %s in %s", extension, f.of.Of, f.of.Channel))
	}
	if err != nil {
		return entities.Reported{}, err
	}
	if f.read == nil {
		f.read = map[string]entities.Reported{}
	}
	f.read[extension] = record.Reported
	return record.Reported, nil
}

// definition replaces the references in the definition of an extension.
func (f *filler) definition(ctx context.Context, d *entities.ExtensionDefinition) error {
	fill := func(text string) string { return f.text(ctx, text) }
	entities.FillEnv(d.Env, fill)
	for n, text := range d.Command.Argv {
		d.Command.Argv[n] = fill(text)
	}
	return f.err
}

// storeReport stores the report of an extension that succeeded. An invalid report makes the extension fail.
func (f *filler) storeReport(ctx context.Context, d *entities.ExtensionDefinition, release, stdout string) (failed string, err error) {
	reported, err := entities.ParseReported(stdout, d.Outputs, d.Addresses)
	if err == nil {
		err = checkAddresses(reported.Addresses)
	}
	if err != nil {
		return runtimes.ClipMessage(fmt.Sprintf("extension %s: %s", d.Name, err), tailSize), nil
	}
	of := f.of
	of.Extension = d.Name
	return "", f.a.Store.PutReport(ctx, of, release, reported)
}

// checkAddresses rejects addresses that a command could interpret as something else.
func checkAddresses(addresses map[string]string) error {
	for _, name := range entities.SortedKeys(addresses) {
		if text := addresses[name]; text == "" || len(text) > 253 || strings.ContainsFunc(text, isInvalidInAddress) {
			return fmt.Errorf("the reported address of %s is invalid: %q", name, runtimes.Clip(text, 100))
		}
	}
	return nil
}

// isInvalidInAddress reports whether a character occurs in neither names nor IP addresses.
func isInvalidInAddress(r rune) bool {
	return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:[]", r)
}

// withAddresses returns the work of a plan with the addresses that its steps reported. allowMissing is for one of these steps, which may
// not have addresses yet.
func (f *filler) withAddresses(ctx context.Context, work *plan.Work, allowMissing bool) (*plan.Work, error) {
	located := *work
	located.Targets = slices.Clone(work.Targets)
	f.addresses = map[string]string{}
	for n := range located.Targets {
		t := &located.Targets[n]
		if t.ReportedBy != "" {
			reported, err := f.reportOf(ctx, t.ReportedBy)
			if err != nil && !allowMissing {
				return nil, fmt.Errorf("the address of %s: %w", t.Name, err)
			}
			t.Address = reported.Addresses[t.Name]
		}
		f.addresses[t.Name] = t.Address
	}
	return &located, nil
}
