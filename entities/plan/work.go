package plan

import (
	"slices"

	"github.com/converge-engine/converge/entities"
)

// Work is the plan input of an incarnation in one release channel: the services and targets, and the commands for the nodes. It is stored
// in the incarnation without the application, the channel and the keys of services. The reader adds these.
type Work struct {
	Application string    `json:"application,omitempty"`
	Channel     string    `json:"channel,omitempty"`
	Services    []Service `json:"services"`
	Targets     []Target  `json:"targets"` // by name
	// Commands run for all nodes except DEPLOY, in this order for each node. Those of CALLBACK run for their services.
	Commands []Command `json:"commands,omitempty"`
	// Before and After run one after another around all nodes. After a failure nothing that follows runs (E15).
	Before    []entities.Extension `json:"before,omitempty"`
	After     []entities.Extension `json:"after,omitempty"`
	Fragments []Fragment           `json:"fragments,omitempty"`
	// Recipients are age recipients for whom the values that CALLBACK captures are encrypted.
	Recipients []string `json:"recipients,omitempty"`
	// Limit is how many nodes may run at once; 0 is no limit. Eager: RECONCILE does not wait for aggregators (E12).
	Limit int  `json:"limit,omitempty"`
	Eager bool `json:"eager,omitempty"`
}

// Target is a runtime that services of the channel are deployed to.
type Target struct {
	Name    string `json:"name"`
	Address string `json:"address,omitempty"`
	// ReportedBy is the initial step that reports the address; "": it is declared, or not known.
	ReportedBy string `json:"reportedBy,omitempty"`
	Serial     bool   `json:"serial,omitempty"` // runs one node at a time
}

// Command runs for the nodes of a kind and a service. The command itself is in the store, like that of an extension. Its Stage, After and
// Every are not set.
type Command struct {
	Kind    Kind               `json:"kind"`
	Service string             `json:"service,omitempty"` // empty for DNS
	Run     entities.Extension `json:"run"`
	// Captures are the names of the secrets that a CALLBACK prints.
	Captures []string `json:"captures,omitempty"`
}

// Fragment is the content of a service for an aggregator.
type Fragment struct {
	Service    string `json:"service"`
	Aggregator string `json:"aggregator"`
	Content    string `json:"content"`
	// Captured: the content refers to captured values, which are inserted where the fragment is used.
	Captured bool `json:"captured,omitempty"`
	// Reported: the content refers to values that initial steps report.
	Reported bool `json:"reported,omitempty"`
}

// Plan builds the plan for a scope. The errors are those of Build.
func (w *Work) Plan(scope Scope) (*Plan, error) {
	scope.Eager = scope.Eager || w.Eager
	p, err := Build(w.Services, scope)
	if err != nil {
		return nil, err
	}
	for _, t := range w.Targets {
		if t.Serial {
			p.Serial = append(p.Serial, t.Name)
		}
	}
	return p, nil
}

// AllCommands lists the commands of all nodes, and those before and after them.
func (w *Work) AllCommands() []entities.Extension {
	commands := slices.Concat(w.Before, w.After)
	for _, c := range w.Commands {
		commands = append(commands, c.Run)
	}
	return commands
}

// Size returns the number of nodes in the plan of everything, and an upper bound of the edges, without building the plan.
func (w *Work) Size() (nodes, edges int) {
	byName := map[string]*Service{}
	aggregators := 0
	for n := range w.Services {
		s := &w.Services[n]
		byName[s.Name] = s
		if s.Aggregator != "" {
			aggregators += len(s.Targets)
		}
	}
	targets := func(names []string) (sum int) {
		for _, name := range names {
			if s := byName[name]; s != nil {
				sum += len(s.Targets)
			}
		}
		return sum
	}
	for n := range w.Services {
		s := &w.Services[n]
		nodes += len(s.Targets)
		edges += len(s.Targets) * (1 + targets(s.Requires))
		if s.Aggregator != "" {
			nodes += len(s.Targets)
			edges += 2 * len(s.Targets)
		}
		if s.Reconciles {
			nodes += len(s.Targets)
			edges += len(s.Targets) * (1 + aggregators + targets(s.ReconcilesAfter))
		}
	}
	return nodes + 2, edges
}

// CommandsOf lists the commands of a node, in order.
func (w *Work) CommandsOf(n *Node) (all []Command) {
	for _, c := range w.Commands {
		if c.Kind == n.Kind && (c.Service == n.Service || n.Kind == Callback) {
			all = append(all, c)
		}
	}
	return all
}

// InputSchema names the version of Input. Within a version fields are only added.
const InputSchema = "converge.plan/v1"

// Input is the JSON input of a node's commands. It contains no secrets.
type Input struct {
	Schema      string `json:"schema"`
	Application string `json:"application"`
	Channel     string `json:"channel"`
	Kind        Kind   `json:"kind"`
	Service     string `json:"service,omitempty"`
	Target      string `json:"target,omitempty"`
	Address     string `json:"address,omitempty"` // of the target
	// Services, for DNS, are those with names. Fragments, for an aggregator, are the collected ones.
	Services  []NamedService `json:"services,omitempty"`
	Fragments []Fragment     `json:"fragments,omitempty"`
}

// NamedService is a service with DNS names, and its location.
type NamedService struct {
	Service string   `json:"service"`
	Names   []string `json:"names"`
	Targets []Target `json:"targets"`
}

// Input returns the input of a node's commands.
func (w *Work) Input(n *Node) Input {
	in := Input{
		Schema: InputSchema, Application: w.Application, Channel: w.Channel, Kind: n.Kind, Service: n.Service, Target: n.Target,
		Address: w.target(n.Target).Address,
	}
	switch n.Kind {
	case DNS:
		for _, s := range w.Services {
			if s.DNS {
				named := NamedService{Service: s.Name, Names: s.Names}
				for _, name := range s.Targets {
					named.Targets = append(named.Targets, w.target(name))
				}
				in.Services = append(in.Services, named)
			}
		}
	case Sync, Redeploy:
		for _, f := range w.Fragments {
			if f.Aggregator == n.Service {
				in.Fragments = append(in.Fragments, f)
			}
		}
	}
	return in
}

func (w *Work) target(name string) Target {
	for _, t := range w.Targets {
		if t.Name == name {
			return t
		}
	}
	return Target{Name: name}
}
