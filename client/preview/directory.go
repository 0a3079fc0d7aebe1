package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/converge-engine/converge/activities"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/compile"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/store"
)

// directory is a configuration that is compiled and not published.
type directory struct {
	planner  *Planner
	compiled *compile.Compiled
	specs    map[string]entities.Spec
	before   protocol.ApplicationStatus // the newest incarnation
	after    int64                      // the number that it would get
	*previewItems
}

// Directory plans the changes that the publication of a directory would make, at the current versions of the channels. newest queries the
// application for the newest incarnation; an application that does not exist has none. Errors in the configuration are config.Problems.
func (p *Planner) Directory(ctx context.Context, dir string, newest func(application string) (protocol.ApplicationStatus, error)) (*Plan, error) {
	d := &directory{planner: p}
	if err := d.compile(ctx, dir); err != nil {
		return nil, err
	}
	application := d.compiled.Incarnation.Application()
	var err error
	if d.before, err = newest(application); err != nil {
		return nil, err
	}
	if err := d.applyRenames(ctx); err != nil {
		return nil, err
	}
	if d.after, err = d.number(ctx, application); err != nil {
		return nil, err
	}
	if err := d.write(ctx); err != nil {
		return nil, fmt.Errorf("plan %s: %w", application, err)
	}
	d.previewItems = &previewItems{planner: p, application: application, incarnation: d.compiled.Incarnation.Hash()}
	plan := &Plan{Application: application, Incarnation: d.before.Newest, Services: []Service{}}
	if err := d.compare(ctx, plan); err != nil {
		return nil, fmt.Errorf("plan %s: %w", application, err)
	}
	manifest, err := d.planner.Store.Manifest(ctx, d.before.Manifest)
	if err != nil && !store.IsNotFound(err) {
		return nil, err
	}
	if err := d.addRemovals(ctx, plan, manifest); err != nil {
		return nil, fmt.Errorf("plan %s: %w", application, err)
	}
	if err := d.resolve(ctx, plan, "*", "plan "+application); err != nil {
		return nil, err
	}
	plan.setTitles(d.compiled.Incarnation.ServiceNames())
	plan.setTitles(d.before.Names) // of services that are no longer declared
	return plan, nil
}

// compile does the same as a publication, up to the first claim in the store.
func (d *directory) compile(ctx context.Context, dir string) error {
	known, err := d.planner.Store.Runtimes(ctx)
	if err != nil {
		return fmt.Errorf("read the published runtimes: %w", err)
	}
	digest, err := d.planner.Store.SecretDigest(ctx)
	if err != nil {
		return err
	}
	rules, err := d.planner.Store.Rules(ctx)
	if err != nil {
		return fmt.Errorf("read the rules of the installation: %w", err)
	}
	config, err := compile.LoadWith(dir, config.Options{Runtimes: known, RuntimesOf: rules.RuntimesOf(), SecretDigest: digest, AllowFake: d.planner.Fake, Published: d.planner.Store.Imports(ctx), RunCommand: d.planner.Run})
	if err != nil {
		return err
	}
	if d.compiled, err = compile.Compile(config); err != nil {
		return err
	}
	return d.planner.Store.CheckReachable(d.compiled.Runtimes)
}

// applyRenames applies renames relative to the newest incarnation.
func (d *directory) applyRenames(ctx context.Context) error {
	before, err := d.planner.Store.Incarnation(ctx, newestHash(d.before))
	if err != nil && !store.IsNotFound(err) {
		return err
	}
	if err := d.compiled.InheritIdentities(before, d.before.Names); err != nil {
		return &Refused{err.Error()}
	}
	d.specs, err = d.compiled.Specs()
	return err
}

// number is the number that the incarnation would get, as far as is known.
func (d *directory) number(ctx context.Context, application string) (int64, error) {
	numbers, err := d.planner.Store.ListNumbers(ctx, application)
	if err != nil || len(numbers) == 0 {
		return d.before.Newest + 1, err
	}
	return max(d.before.Newest, slices.Max(numbers)) + 1, nil
}

// write puts content-addressed objects into the store: they affect nothing if the publication never happens.
func (d *directory) write(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, definition := range d.compiled.Runtimes {
		g.Go(func() error {
			_, err := d.planner.Store.PutRuntime(ctx, definition)
			return err
		})
	}
	for _, bundle := range d.compiled.Bundles {
		g.Go(func() error { return d.planner.Store.PutBundle(ctx, bundle) })
	}
	g.Go(func() error {
		_, err := d.planner.Store.PutIncarnation(ctx, d.compiled.Incarnation)
		return err
	})
	return g.Wait()
}

// compare finds the services and channels that a publication would change.
func (d *directory) compare(ctx context.Context, plan *Plan) error {
	old, err := d.rules(ctx, plan)
	if err != nil {
		return err
	}
	services := entities.SortedKeys(d.specs)
	statuses := make([]protocol.Status, len(services))
	g, asking := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for n, name := range services {
		if !templatesDiffer(old[name], d.specs[name]) {
			continue
		}
		g.Go(func() (err error) {
			before, now := old[name], d.specs[name]
			statuses[n], err = d.planner.Status(asking, name)
			renameChannels(&statuses[n], entities.RenamedChannels(&before, &now))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for n, name := range services {
		if !templatesDiffer(old[name], d.specs[name]) {
			continue
		}
		service, err := d.service(ctx, d.specs[name], statuses[n])
		var refused *Refused
		switch {
		case errors.As(err, &refused): // as in a publication: it is published, and releases nothing
			service = Service{Service: name, Notes: []string{"nothing would be released: " + refused.Reason}, Channels: []Channel{}}
			d.dropService(name)
		case err != nil:
			return fmt.Errorf("service %s: %w", name, err)
		}
		if len(service.Channels)+len(service.Notes) > 0 {
			plan.Services = append(plan.Services, service)
		}
	}
	return nil
}

// rules computes the changed rules and the removed services, and returns the newest specs.
func (d *directory) rules(ctx context.Context, plan *Plan) (map[string]entities.Spec, error) {
	old := map[string]entities.Spec{}
	manifest, err := d.planner.Store.Manifest(ctx, d.before.Manifest)
	if err != nil && !store.IsNotFound(err) {
		return nil, err
	}
	for _, name := range entities.SortedKeys(manifest) {
		if _, declared := d.specs[name]; !declared {
			plan.Removed = append(plan.Removed, name)
			continue
		}
		spec, err := d.planner.Store.Spec(ctx, manifest[name])
		if err != nil && !store.IsNotFound(err) {
			return nil, err
		}
		old[name] = spec
	}
	before, err := d.planner.Store.Incarnation(ctx, newestHash(d.before))
	if err != nil && !store.IsNotFound(err) {
		return nil, err
	}
	difference, err := incarnation.Diff(before, d.compiled.Incarnation)
	if err != nil {
		return nil, err
	}
	if difference = rulesOnly(difference); !difference.Empty() {
		plan.Rules = difference
	}
	return old, nil
}

// rulesOnly omits payloads: the runtimes report changes of those. Added and removed services are reported elsewhere too.
func rulesOnly(d *incarnation.Difference) *incarnation.Difference {
	out := *d
	out.Services = []incarnation.ServiceDifference{}
	for _, s := range d.Services {
		if s.Kind != incarnation.Changed {
			continue
		}
		var channels []incarnation.ChannelDifference
		for _, c := range s.Channels {
			if c.Payload = nil; len(c.Rules) > 0 || c.Kind != incarnation.Changed {
				channels = append(channels, c)
			}
		}
		if s.Channels = channels; len(s.Rules)+len(channels) > 0 {
			out.Services = append(out.Services, s)
		}
	}
	return &out
}

// renameChannels changes the channel names in a status.
func renameChannels(s *protocol.Status, names map[string]string) {
	for n := range s.Channels {
		s.Channels[n].Name = entities.NameIn(names, s.Channels[n].Name)
	}
}

func templatesDiffer(before, now entities.Spec) bool {
	old := before.WithChannelNames(entities.RenamedChannels(&before, &now))
	for _, id := range now.IDs() {
		before, ok := old.Instance(id)
		if after, _ := now.Instance(id); !ok || before.Template != after.Template {
			return true
		}
	}
	return now.Version != old.Version
}

// service plans one service: a newly declared version for all channels, or else the new configuration at the current version of each
// channel.
func (d *directory) service(ctx context.Context, spec entities.Spec, status protocol.Status) (Service, error) {
	service := Service{Service: spec.Service, Channels: []Channel{}}
	released := len(status.Releases) > 0
	version := spec.Version
	if version == "" && !released {
		version = spec.InitialVersion
	}
	switch {
	case version != "" && !d.isNewest(ctx, status, version):
		service.Version, service.Incarnation = version, d.after
		return service, d.version(ctx, &service, spec, status)
	case !released:
		service.Notes = []string{fmt.Sprintf("no version was released yet; to deploy one: converge release %s/%s VERSION", spec.Application, spec.Title())}
		return service, nil
	}
	return service, d.configuration(ctx, &service, spec, status)
}

// isNewest reports whether the newest release is of that version, including changes of its configuration.
func (d *directory) isNewest(ctx context.Context, status protocol.Status, version string) bool {
	if len(status.Releases) == 0 {
		return false
	}
	full := status.Releases[0].Version
	record, err := d.planner.Store.Version(ctx, status.Application, cmp.Or(status.Key, status.Service), full)
	return full == version || err == nil && record.Version == version
}

// version plans a version that the file declares.
func (d *directory) version(ctx context.Context, service *Service, spec entities.Spec, status protocol.Status) error {
	draft, err := d.planner.draft(ctx, protocol.PrepareRequest{
		Application: spec.Application, Service: spec.Service, Version: service.Version, FullVersion: service.Version,
		Incarnation: d.after, Hash: d.compiled.Incarnation.Hash(), Instances: spec.IDs(), Keys: spec.Keys(),
	})
	if err != nil {
		return err
	}
	service.Known, service.Incarnation = draft.Known, draft.Record.Incarnation
	for _, id := range spec.IDs() {
		payload, ok := draft.Payloads[id]
		if !ok {
			continue
		}
		if err := d.add(ctx, service, &spec, id, presentVersion(status, id), service.Version, payload); err != nil {
			return err
		}
	}
	return nil
}

// configuration plans the new configuration at the current versions of the instances.
func (d *directory) configuration(ctx context.Context, service *Service, spec entities.Spec, status protocol.Status) error {
	for _, id := range spec.IDs() {
		if err := d.instance(ctx, service, spec, status, id); err != nil {
			return fmt.Errorf("release channel %s: %w", id, err)
		}
	}
	if len(service.Channels) > 0 && spec.ConfigChanges == entities.ConfigHold {
		service.Notes = append(service.Notes, "configChanges: hold: it waits for the next release")
	}
	return nil
}

func (d *directory) instance(ctx context.Context, service *Service, spec entities.Spec, status protocol.Status, id entities.InstanceID) error {
	at := presentVersion(status, id)
	if at == "" { // a new instance gets the newest release
		at = status.Releases[0].Version
	}
	record, err := d.planner.Store.Version(ctx, spec.Application, spec.Service, at)
	if err != nil {
		return fmt.Errorf("version %s: %w", at, err)
	}
	request := protocol.PrepareRequest{
		Application: spec.Application, Service: spec.Service, Instances: []entities.InstanceID{id},
		Version: at, FullVersion: at, Incarnation: record.Incarnation, Hash: record.Hash, Keys: spec.Keys(),
	}
	now, err := d.planner.draft(ctx, request)
	if err != nil {
		return err
	}
	payload, existed := now.Payloads[id]
	request.Hash, request.CurrentVersions = d.compiled.Incarnation.Hash(), map[entities.InstanceID]string{id: at}
	under, err := (&activities.Activities{Store: d.planner.Store}).UnderCurrentVersion(ctx, request, id)
	if err = refusal(err); err != nil && !errors.As(err, new(*Refused)) { // if it cannot be compared, it counts as changed
		return err
	}
	if existed && presentVersion(status, id) != "" && under == entities.DigestOf(payload) {
		return nil // no change
	}
	request.Version, request.Incarnation, request.CurrentVersions = record.Version, d.after, nil
	request.FullVersion = fmt.Sprintf("%s-i%d", record.Version, d.after)
	draft, err := d.planner.draft(ctx, request)
	if err != nil {
		return err
	}
	return d.add(ctx, service, &spec, id, presentVersion(status, id), request.FullVersion, draft.Payloads[id])
}
