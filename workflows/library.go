package workflows

import (
	"fmt"

	"go.temporal.io/sdk/workflow"

	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
	"github.com/converge-engine/converge/entities/verb"
)

// This file publishes libraries (G2). A name and a version permanently refer to one content.

// channels is the scope that a grant must cover: a library by its name.
func (i *installation) channels(row *verb.Row, r verb.Request) ([]string, error) {
	if row.Name == protocol.PublishLibrary {
		return []string{entities.ScopeLibraries + r.Library.Name}, nil
	}
	return nil, nil
}

// publishLibrary binds a name and a version to content in the store, unless they are bound to other content.
func (i *installation) publishLibrary(ctx workflow.Context, r verb.Request, who entities.Who) (any, error) {
	wanted := protocol.Library{LibraryName: r.Library, At: i.now(), By: who}
	var recorded protocol.Library
	if err := i.callStore(ctx, protocol.ActivityLibrary, wanted, &recorded); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("library %s %d", wanted.Name, wanted.Version)
	if recorded.Digest != wanted.Digest {
		return nil, asRefusal(fmt.Errorf("%s was published by %s at %s with other content, %s; give this one another version",
			name, recorded.By.Name, recorded.At.Format("2006-01-02 15:04 MST"), recorded.Digest))
	}
	if !recorded.At.Equal(wanted.At) {
		return protocol.Answer{Message: fmt.Sprintf("%s was published by %s already; nothing changed", name, recorded.By.Name)}, nil
	}
	text := fmt.Sprintf("%s is published: %s", name, recorded.Digest)
	i.recordAudit(entities.EventPublish, &who, text, r.Reason)
	return protocol.Answer{Message: joinNotes(text, identityNote(r, who))}, nil
}
