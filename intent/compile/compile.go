// Package compile compiles a configuration to an incarnation and the definitions that it refers to, or reports all problems at once.
// Load reads the configuration of a directory, Compile compiles it.
//
// Compiling is hermetic: the same sources produce the same bytes, independent of clock, directory and machine (D4). Only loading reads
// files. It imports config, sources, bundle and incarnation.
package compile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/intent/bundle"
	"github.com/converge-engine/converge/intent/config"
	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/intent/internal/strict"
	"github.com/converge-engine/converge/intent/internal/substitute"
	"github.com/converge-engine/converge/intent/sources"
)

// Compiled is the result of a compilation.
type Compiled struct {
	Incarnation *incarnation.Incarnation
	// Runtimes are the runtime definitions of this configuration, by name. They are published separately.
	Runtimes []entities.RuntimeDefinition
	// Bundles are the Kubernetes objects that the incarnation refers to, by digest. They are put into the store before it.
	Bundles []bundle.Bundle
	// Warnings report legal but probably unintended configuration; each once, in order.
	Warnings []string

	knownRuntimes []entities.RuntimeDefinition // including those of other applications
	definitions   definitions
}

// Specs returns the service specs of the incarnation by service. Checks and Extensions return the definitions of their checks and
// extensions.
func (c *Compiled) Specs() (map[string]entities.Spec, error) {
	return incarnation.Specs(c.Incarnation, c.knownRuntimes)
}

// InheritIdentities makes the incarnation a successor of the previous one (nil: there is none). Renamed things keep their identity. For
// services that the previous one does not know, known has their first names. It is an error if two things would get the same identity.
func (c *Compiled) InheritIdentities(before *incarnation.Incarnation, known protocol.ServiceNames) error {
	inherited, err := incarnation.InheritChannelKeys(before, c.Incarnation)
	if err == nil {
		inherited, err = incarnation.InheritServiceKeys(before, inherited, known)
	}
	if err == nil {
		inherited, err = incarnation.InheritInstanceNames(before, inherited)
	}
	if err == nil {
		c.Incarnation = inherited
	}
	return err
}

// Compile compiles a configuration to an incarnation. It reads no files, and the same sources produce the same bytes (D4). An error of
// type Problems lists all problems; a configuration that Load accepted has none.
func Compile(config *Loaded) (*Compiled, error) {
	compiled, problems := compile(config, false)
	if len(problems) > 0 {
		return nil, problems
	}
	return compiled, nil
}

// compiler checks and compiles in one pass, so that it finds all problems at once.
type compiler struct {
	config *config.Config
	inputs *sources.Objects
	// partial: something could not be read. References are then not checked, because the missing part may declare their targets.
	partial            bool
	invalidRuntimeName bool // the name of a runtime is invalid, and it may be the target of a reference
	problems           strict.Problems
	byPosition         map[string]*channelFault
	positions          []string

	channels     []incarnation.Channel   // in file order
	refs         map[string][]runtimeRef // runtimes by channel
	runtimes     map[string]entities.RuntimeDefinition
	bundles      map[string]bundle.Bundle // by their inputs
	objectOwners map[objectKey]objectOwner
	custom       *customKinds
	warnings     map[string]bool

	addonTypes  map[string]*sources.Schema // nil: any value
	protections map[string]*protectionDoc
	extensions  map[string]*extensionDoc
	definitions definitions
	shared      map[string]entities.ExtensionDefinition // by service and ExtensionKey

	serviceChannels map[string][]string // channels by service
	parameterTypes  map[string]map[string]entities.ParamType
	preconditions   map[string][]dependency // dependencies of the channels
	edges           []edge
	works           map[string]*plan.Work   // for channels that have plans
	fragments       int                     // total bytes
	configSteps     *entities.ConfigRollout // rollout policy for changes of configuration
}

// runtimeRef is an existing runtime of a channel.
type runtimeRef struct {
	name, namespace, path string
	account               string // used to access it; empty: the worker's own account
	movedFrom             *entities.MovedFrom
	selected              bool // by a fleet's selector: the service runs on all suitable ones
}

// channelFault is a problem that several channels share.
type channelFault struct {
	decoder  *strict.Decoder
	path     string
	fault    substitute.ScopedFault
	channels []string
}

func newCompiler(config *Loaded, partial bool) *compiler {
	return &compiler{
		config: config.Config, inputs: config.inputs, partial: partial, byPosition: map[string]*channelFault{},
		refs: map[string][]runtimeRef{}, runtimes: map[string]entities.RuntimeDefinition{},
		bundles: map[string]bundle.Bundle{}, objectOwners: map[objectKey]objectOwner{}, custom: newCustomKinds(), warnings: map[string]bool{},
		addonTypes:  map[string]*sources.Schema{},
		protections: map[string]*protectionDoc{}, extensions: map[string]*extensionDoc{},
		definitions: definitions{map[string]entities.CheckDefinition{}, map[string]entities.ExtensionDefinition{}}, shared: map[string]entities.ExtensionDefinition{},
		serviceChannels: map[string][]string{}, parameterTypes: map[string]map[string]entities.ParamType{}, preconditions: map[string][]dependency{}, works: map[string]*plan.Work{},
	}
}

func compile(config *Loaded, partial bool) (*Compiled, strict.Problems) {
	c := newCompiler(config, partial)
	for _, known := range config.Options.Runtimes {
		c.runtimes[known.Name] = known
	}
	ownRuntimes := c.defineRuntimes()
	c.defineProtections()
	c.defineExtensions()
	c.rejectMisplaced()
	app := config.Application
	if app == nil {
		if !partial {
			c.noApplication()
		}
		return nil, c.allProblems()
	}
	doc := incarnation.Document{Schema: incarnation.Schema, Application: string(app.Spec.Name), Description: app.Spec.Description, Imports: c.imports()}
	c.defineChannels(app)
	c.defineAddonTypes(app)
	c.recordServices()
	c.defineConditions(app)
	c.defineGates(app)
	c.configSteps = c.configRollout(app)
	c.definePeople(app, &doc)
	c.checkPlan(app)
	for _, channel := range c.channels {
		if c.hasPlan(app, channel.Name) {
			c.works[channel.Name] = &plan.Work{}
		}
	}
	doc.Services = c.defineServices(app)
	c.checkCustomKinds()
	c.compilePlans(app)
	c.checkDeadlocks()
	doc.Channels = c.sortChannels(app)
	c.boundAssets()
	if problems := c.allProblems(); len(problems) > 0 {
		return nil, problems
	}
	inc, err := incarnation.New(doc)
	if err != nil {
		app.Report("", strict.Fault{Code: "internal", Message: err.Error()})
		return nil, app.Problems
	}
	compiled := &Compiled{Incarnation: inc, Runtimes: ownRuntimes, Bundles: c.allBundles(), Warnings: strict.Keys(c.warnings), definitions: c.definitions}
	for i := range ownRuntimes {
		ownRuntimes[i].Owner = doc.Application
		c.runtimes[ownRuntimes[i].Name] = ownRuntimes[i]
	}
	compiled.knownRuntimes = strict.Map(strict.Keys(c.runtimes), func(name string) entities.RuntimeDefinition { return c.runtimes[name] })
	return compiled, nil
}

func (c *compiler) noApplication() {
	fault := strict.Fault{Code: "no-application", Message: "there is no Application in this directory", Expected: "one document of kind Application"}
	file := "converge.yaml"
	if len(c.config.Files) == 0 {
		fault = strict.Fault{Code: "no-configuration", Message: "there is no configuration in this directory", Expected: "converge.yaml or *.converge.yaml, here or below"}
	} else {
		file = c.config.Files[0]
	}
	c.problems = append(c.problems, strict.Problem{File: file, Line: 1, Column: 1, Fault: fault})
}

// report adds a problem at a path of a document. It omits a missing field if another one there is that field, misspelt.
func (c *compiler) report(d *strict.Decoder, path string, fault strict.Fault) {
	if fault.Code == "missing-field" && d.Misspelt(path) {
		return
	}
	c.problems = append(c.problems, d.Problem(path, fault))
}

// reportIn adds a problem that other channels may share. These become one problem.
func (c *compiler) reportIn(d *strict.Decoder, path, channel string, t substitute.ScopedFault) {
	key := fmt.Sprintf("%p %s %v", d, path, t)
	if c.byPosition[key] == nil {
		c.byPosition[key] = &channelFault{decoder: d, path: path, fault: t}
		c.positions = append(c.positions, key)
	}
	known := c.byPosition[key]
	if !slices.Contains(known.channels, channel) {
		known.channels = append(known.channels, channel)
	}
}

// allProblems returns the problems, sorted.
func (c *compiler) allProblems() strict.Problems {
	all := c.problems
	for _, key := range c.positions {
		t := c.byPosition[key]
		fault := t.fault.Fault
		if t.fault.InChannel {
			fault.Message += " in " + channelList(t.channels)
		}
		all = append(all, t.decoder.Problem(t.path, fault))
	}
	return all.Sorted()
}

func channelList(names []string) string {
	if len(names) == 1 {
		return "release channel " + names[0]
	}
	if more := len(names) - maxListedChannels; more > 1 {
		return fmt.Sprintf("release channels %s and %d more", strings.Join(names[:maxListedChannels], ", "), more)
	}
	return "release channels " + strings.Join(names, ", ")
}

// maxListedChannels is how many channels a problem lists. In a fleet there may be hundreds of instances.
const maxListedChannels = 8

// boundSpecs rejects services with rules that are too large for a workflow, so that everything that loads can be published.
func (c *Compiled) boundSpecs(services []*config.Document[config.Service]) {
	for _, s := range services {
		_, err := incarnation.Specs(c.Incarnation.Only(string(s.Spec.Name)), c.knownRuntimes)
		var fault *strict.Fault
		if errors.As(err, &fault) {
			s.Report("name", *fault)
		}
	}
}

// boundAssets rejects documents that exceed the size limit of an asset, by name (D1). Aliases count expanded.
func (c *compiler) boundAssets() {
	if app := c.config.Application; app != nil {
		boundEach(c, app)
	}
	boundEach(c, c.config.Services...)
	boundEach(c, c.config.Runtimes...)
	boundEach(c, c.config.Protections...)
	boundEach(c, c.config.Extensions...)
}

func boundEach[T interface{ Title() string }](c *compiler, documents ...*config.Document[T]) {
	for _, doc := range documents {
		data, err := json.Marshal(doc.Spec)
		if err != nil && !doc.Faulty("") {
			c.report(doc.Decoder, "name", strict.Fault{Code: "wrong-type", Message: fmt.Sprintf("%s cannot be JSON: %s", doc.Spec.Title(), err)})
		}
		if len(data) > config.MaxAsset {
			c.report(doc.Decoder, "name", strict.Fault{
				Code: "too-large", Message: fmt.Sprintf("%s has %d bytes", doc.Spec.Title(), len(data)),
				Expected: fmt.Sprintf("at most %d", config.MaxAsset),
			})
		}
	}
}

// Loaded is a valid configuration of one application. Compiling it reads no files.
type Loaded struct {
	*config.Config
	inputs *sources.Objects
}

// Load reads converge.yaml and *.converge.yaml in dir and its subdirectories except dot-directories, and checks everything. An error of
// type Problems lists all problems. Any other error means that the directory could not be read.
func Load(dir string) (*Loaded, error) { return LoadWith(dir, config.Options{}) }

// LoadWith is Load with options.
func LoadWith(dir string, options config.Options) (*Loaded, error) {
	absolute, root, err := openDirectory(dir, &options)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return LoadFS(root.FS(), absolute, options)
}

// openDirectory opens the directory of a configuration. Nothing outside can be read, not even through a link.
func openDirectory(dir string, options *config.Options) (absolute string, root *os.Root, err error) {
	if absolute, err = filepath.Abs(dir); err != nil {
		return "", nil, fmt.Errorf("load %s: %w", dir, err)
	}
	if root, err = os.OpenRoot(absolute); err != nil {
		return "", nil, fmt.Errorf("load %s: %w", dir, strict.Reason(err))
	}
	within := options.Within
	options.OpenDirectory = func(path string) (*os.Root, error) {
		return openWithin(within, filepath.Join(absolute, filepath.FromSlash(path)))
	}
	return absolute, root, nil
}

// openWithin opens a directory. If outer is given, the directory must be inside it.
func openWithin(outer, dir string) (*os.Root, error) {
	if outer == "" {
		return os.OpenRoot(dir)
	}
	relative, err := filepath.Rel(outer, dir)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(outer)
	if err != nil {
		return nil, err
	}
	defer root.Close() // a root that was opened in it stays open
	return root.OpenRoot(relative)
}

// LoadFS is LoadWith for a file system that contains the directory.
func LoadFS(fsys fs.FS, dir string, options config.Options) (*Loaded, error) {
	l, err := config.Read(fsys, dir, options)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", dir, err)
	}
	loaded := &Loaded{Config: l.Config, inputs: sources.Read(l)}
	slices.Sort(loaded.Files)
	loaded.Files = slices.Compact(loaded.Files)
	compiled, problems := compile(loaded, l.Broken)
	if len(l.Problems())+len(problems) == 0 {
		compiled.boundSpecs(loaded.Services)
	}
	if len(l.Problems())+len(problems) == 0 {
		problems = loaded.validate(compiled)
	}
	if problems = append(l.Problems(), problems...).Sorted(); len(problems) > 0 {
		return nil, withoutOtherApplications(problems, loaded.Application)
	}
	return loaded, nil
}

// withoutOtherApplications returns one problem for a directory with several applications, each in a directory of its own: the others are
// consequences.
func withoutOtherApplications(problems config.Problems, first *config.Document[config.Application]) config.Problems {
	others := slices.DeleteFunc(slices.Clone(problems), func(p config.Problem) bool {
		return p.Code != config.DuplicateApplication || path.Dir(p.File) == path.Dir(first.File)
	})
	if len(others) == 0 {
		return problems
	}
	const named = 3
	dirs := []string{path.Dir(first.File)}
	for _, p := range others {
		dirs = append(dirs, path.Dir(p.File))
	}
	dirs = slices.Compact(slices.Sorted(slices.Values(dirs)))
	text := strings.Join(dirs[:min(named, len(dirs))], ", ")
	if len(dirs) > named {
		text += fmt.Sprintf(" and %d more", len(dirs)-named)
	}
	others[0].Message = fmt.Sprintf("there is an Application in each of several directories: %s", text)
	others[0].Expected = "one Application for this directory and those below: name the directory of one"
	return others[:1]
}
