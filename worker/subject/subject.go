// Package subject says what an activity is about, by its request, to those who log and trace it. It imports the protocol.
package subject

import "github.com/converge-engine/converge/entities/protocol"

// Subject is what of a service something is about; what is not known is empty. The release is a full version.
type Subject struct {
	Application, Service, Channel, Release, Runtime string
	// Changes: it changes something, and does not only look.
	Changes bool
}

// Fields are those that are known, by name.
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

// Of is what an activity is about; nothing is known of those that are about no service.
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
		if len(r.Of) > 0 {
			return Subject{Application: r.Of[0].Application, Service: r.Of[0].Service}
		}
	case protocol.CheckRequest:
		return Subject{Application: r.Application, Service: r.Service}
	case protocol.PrepareRequest:
		return Subject{Application: r.Application, Service: r.Service}
	}
	return Subject{}
}
