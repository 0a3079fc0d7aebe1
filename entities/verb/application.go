package verb

import (
	"errors"
	"fmt"
	"strings"

	"github.com/converge-engine/converge/entities/protocol"
)

// This file holds the verbs of an application.

var application = [...]Row{
	{
		Name: protocol.Publish, Description: "makes a compiled incarnation the newest",
		payload: of(func(r *Request, p *protocol.PublishRequest) { r.Act, r.Publish = p.Act, *p }),
		complete: func(r Request) error {
			if r.Publish.Hash == "" || r.Publish.Manifest == "" {
				return errors.New(`"hash" and "manifest" are needed; publish with: converge apply DIR`)
			}
			return checkMissing(r.Publish.Missing)
		},
	},
	{Name: protocol.Pause, Description: "pauses all services of the application", payload: justAct},
	{Name: protocol.Resume, Description: "ends the pause of the application", payload: justAct},
	{
		Name: protocol.Pin, Description: "keeps all services at an incarnation, whatever is published",
		payload: of(func(r *Request, p *protocol.IncarnationPin) { r.Act, r.Incarnation = p.Act, p.Incarnation }),
	},
	{Name: protocol.Unpin, Description: "ends the pin of the application: services go to the newest incarnation", payload: justAct},
	{
		Name: protocol.Unmanage, Description: "keeps a service, or all of them, down: nobody looks after what it runs", payload: ofService,
		complete: func(r Request) error {
			if strings.TrimSpace(r.Reason) == "" {
				return errors.New(`"reason" is missing: whoever finds a service down wants to know why`)
			}
			return namesService(r)
		},
	},
	{
		Name: protocol.Manage, Description: "looks after a service, or all of them, again", payload: ofService, complete: namesService,
	},
}

// checkMissing refuses what is no name of a service.
func checkMissing(services []string) error {
	for _, name := range services {
		if name == "" || name == protocol.AllServices || len(name) > MaxName {
			return fmt.Errorf(`"missing" names %q; expected names of services`, Clip(name, 60))
		}
	}
	return nil
}

// namesService refuses what stands for all services elsewhere.
func namesService(r Request) error {
	if r.Service == protocol.AllServices {
		return errors.New(`"service" is "*"; leave it out for the whole application`)
	}
	return nil
}
