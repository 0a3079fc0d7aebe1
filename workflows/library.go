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
	var stands protocol.Library
	if err := i.fromStore(ctx, protocol.ActivityLibrary, wanted, &stands); err != nil {
		return nil, err
	}
	is := fmt.Sprintf("library %s %d", wanted.Name, wanted.Version)
	if stands.Digest != wanted.Digest {
		return nil, refused(fmt.Errorf("%s was published by %s at %s with other content, %s; give this one another version",
			is, stands.By.Name, stands.At.Format("2006-01-02 15:04 MST"), stands.Digest))
	}
	if !stands.At.Equal(wanted.At) {
		return protocol.Answer{Message: fmt.Sprintf("%s was published by %s already; nothing changed", is, stands.By.Name)}, nil
	}
	text := fmt.Sprintf("%s is published: %s", is, stands.Digest)
	i.note(entities.EventPublish, &who, text, r.Reason)
	return protocol.Answer{Message: joined(text, replaced(r, who))}, nil
}
