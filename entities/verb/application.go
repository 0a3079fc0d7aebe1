package verb

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds the verbs of an application.

var application = [...]Row{
	{
		Name: protocol.Publish, Description: "publishes a compiled incarnation as the newest", Store: true, answer: protocol.PublishAnswer{},
		payload: payloadOf(func(r *Request, p *protocol.PublishRequest) { r.RequestMeta, r.Publish = p.RequestMeta, *p }),
		validate: func(r Request) error {
			if r.Publish.Hash == "" || r.Publish.Manifest == "" {
				return errors.New(`"hash" and "manifest" are required; publish with: converge config publish DIR`)
			}
			if err := checkMissing(r.Publish.Missing); err != nil {
				return err
			}
			return checkRuntimeChanges(r.Publish.Runtimes)
		},
	},
	{
		Name: protocol.Release, Description: "releases versions of several services under one id: all of them, or none", Store: true, PerService: true, answer: protocol.JointAnswer{},
		payload: payloadOf(func(r *Request, p *protocol.JointRequest) { r.RequestMeta, r.ID, r.Joint = p.RequestMeta, p.ID, *p }), validate: checkJoint, Repeat: repeatJoint,
	},
	{Name: protocol.Pause, Description: "pauses all services of the application", payload: actPayload},
	{Name: protocol.Resume, Description: "ends the pause of the application", payload: actPayload},
	{
		Name: protocol.Pin, Description: "keeps all services at an incarnation, regardless of later publications", Grant: protocol.PinApplication,
		payload: payloadOf(func(r *Request, p *protocol.IncarnationPin) {
			r.RequestMeta, r.Incarnation = p.RequestMeta, p.Incarnation
		}),
	},
	{Name: protocol.Unpin, Description: "ends the pin of the application: services move to the newest incarnation", Grant: protocol.PinApplication, payload: actPayload},
	{
		Name: protocol.Unmanage, Description: "stops managing a service, or all of them; their objects stay", payload: servicePayload,
		validate: func(r Request) error {
			if strings.TrimSpace(r.Reason) == "" {
				return errors.New(`"reason" is missing; expected why the service is not managed`)
			}
			return rejectAllServices(r)
		},
	},
	{
		Name: protocol.Manage, Description: "resumes managing a service, or all of them", payload: servicePayload, validate: rejectAllServices,
	},
}

// MaxJointServices limits the services of one joint release, so that the answer about all of them fits into one payload.
const MaxJointServices = 200

// checkJoint rejects an invalid joint release.
func checkJoint(r Request) error {
	if len(r.Joint.Services) == 0 {
		return errors.New(`"services" is missing; expected the version of each, such as {"web": {"version": "v2"}}`)
	}
	if n := len(r.Joint.Services); n > MaxJointServices {
		return fmt.Errorf(`"services" names %d services; at most %d go in one release`, n, MaxJointServices)
	}
	if id := r.Joint.ID; id != "" && !jointRE.MatchString(id) {
		return fmt.Errorf(`"id" is %q; expected 1 to 63 lower-case letters, digits and hyphens, beginning with a letter`, Clip(id, 60))
	}
	for _, name := range entities.SortedKeys(r.Joint.Services) {
		if name == "" || name == protocol.AllServices || len(name) > MaxName {
			return fmt.Errorf(`"services" names %q; expected names of services`, Clip(name, 60))
		}
		if r.Joint.Services[name].Version == "" {
			return fmt.Errorf(`"services" has no "version" for %s`, name)
		}
	}
	return nil
}

// jointRE matches the id of a joint release. Such an id never looks like the numeric ids of a service's own releases.
var jointRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

func repeatJoint(before json.RawMessage) json.RawMessage {
	return editAnswer(before, func(answer *protocol.JointAnswer) { answer.Repeated = true })
}

// checkMissing rejects invalid service names.
func checkMissing(services []string) error {
	for _, name := range services {
		if name == "" || name == protocol.AllServices || len(name) > MaxName {
			return fmt.Errorf(`"missing" names %q; expected names of services`, Clip(name, 60))
		}
	}
	return nil
}

// checkRuntimeChanges rejects changes of runtimes that do not fit into a line of the audit trail.
func checkRuntimeChanges(changes []string) error {
	if n := len(changes); n > protocol.MaxRuntimeChanges {
		return fmt.Errorf(`"runtimes" has %d entries; expected at most %d`, n, protocol.MaxRuntimeChanges)
	}
	for _, change := range changes {
		if n := len(change); n == 0 || n > protocol.MaxRuntimeChange || strings.ContainsFunc(change, unprintable) {
			return fmt.Errorf(`"runtimes" has the entry %q; expected 1 to %d bytes of printable text`, Clip(change, 60), protocol.MaxRuntimeChange)
		}
	}
	return nil
}

// rejectAllServices rejects "*", which means all services elsewhere.
func rejectAllServices(r Request) error {
	if r.Service == protocol.AllServices {
		return errors.New(`"service" is "*"; omit it for the whole application`)
	}
	return nil
}
