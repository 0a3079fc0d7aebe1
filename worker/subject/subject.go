// Package subject extracts the subject of an activity from its request, for logs and traces. It imports the protocol.
package subject

import "github.com/converge-engine/converge/entities/protocol"

// Subject is the part of a service that an activity concerns; unknown fields are empty. The release is a full version.
type Subject struct {
	Application, Service, Channel, Release, Runtime string
	// Changes is true if the activity changes something, rather than only read.
	Changes bool
}

// Fields are the known fields, by name.
func (s Subject) Fields() [][2]string {
	var known [][2]string
	for _, field := range [...][2]string{
		{"application", s.Application}, {"service", s.Service}, {"channel", s.Channel}, {"release", s.Release}, {"runtime", s.Runtime},
	} {
		if field[1] != "" {
			known = append(known, field)
		}
	}
	return known
}

// Of is the subject of an activity; it is empty if the activity concerns no service.
func Of(args []any) Subject {
	if len(args) != 1 {
		return Subject{}
	}
	switch r := args[0].(type) {
	case protocol.ApplyRequest:
		return Subject{r.Application, r.Service, r.Instance.ID.String(), r.Instance.FullVersion, r.Runtime, true}
	case protocol.RemoveRequest:
		return Subject{r.Application, r.Service, r.Instance.ID.String(), r.Instance.FullVersion, r.Runtime, true}
	case protocol.SteerRequest:
		return Subject{r.Application, r.Service, r.Instance.ID.String(), r.Instance.FullVersion, r.Runtime, true}
	case protocol.ExtensionRequest:
		return Subject{r.Application, r.Service, r.Channel, r.FullVersion, "", true}
	case protocol.ObserveRequest:
		s := Subject{Application: r.Application, Service: r.Service, Runtime: r.Runtime}
		if len(r.Instances) == 1 {
			s.Channel, s.Release = r.Instances[0].ID.String(), r.Instances[0].FullVersion
		}
		return s
	case protocol.ObserveAllRequest:
		if len(r.Requests) > 0 {
			return Subject{Application: r.Requests[0].Application, Service: r.Requests[0].Service}
		}
	case protocol.CheckRequest:
		return Subject{Application: r.Application, Service: r.Service}
	case protocol.PrepareRequest:
		return Subject{Application: r.Application, Service: r.Service}
	}
	return Subject{}
}
