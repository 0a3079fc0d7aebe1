package board

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/converge-engine/converge/client/connection"
	"github.com/converge-engine/converge/client/preview"
	"github.com/converge-engine/converge/client/read"
	"github.com/converge-engine/converge/entities/protocol"
)

// changes is what a release would change where it is not yet, or why that is not known.
type changes struct {
	Channels []channelChanges
	Problem  string
}

// channelChanges are the changes of one instance of a channel.
type channelChanges struct {
	Name    string
	Text    string // instead of objects
	Objects []objectChange
	Omitted int
}

// objectChange is the change of one object.
type objectChange struct {
	Word, Name string
	Notes      []string
	Fields     []fieldChange
	More       int // fields that are not listed
}

type fieldChange struct{ Path, Old, New string }

// changesOf asks the runtimes, through a short workflow, what the release of a version would change.
func (b *board) changesOf(ctx context.Context, n connection.ServiceName, version string, channels ...string) *changes {
	plan, err := b.Previews.Release(ctx, b.Calls, b.Stores, n, version, true)
	var refused *preview.Refused
	switch {
	case errors.As(err, &refused):
		return &changes{Problem: refused.Reason}
	case err != nil:
		return &changes{Problem: "what changes is not known: " + err.Error()}
	}
	c := &changes{}
	for _, s := range plan.Services {
		for _, each := range s.Channels {
			if len(channels) == 0 || slices.Contains(channels, each.Channel) {
				c.Channels = append(c.Channels, changesOfChannel(each))
			}
		}
	}
	if len(c.Channels) == 0 {
		c.Problem = "nothing would change"
	}
	return c
}

func changesOfChannel(c preview.Channel) channelChanges {
	out := channelChanges{Name: c.Name(), Omitted: c.Omitted}
	switch {
	case c.Failed():
		out.Text = "what changes is not known: " + c.Message
	case c.Unchanged():
		out.Text = "nothing changes"
	case c.Unseen():
		out.Text = "it is applied; " + c.Message
		if len(c.Sent) > 0 {
			out.Objects = []objectChange{{Name: "What is sent to the runtime", Fields: fieldChanges(c.Sent)}}
		}
	default:
		for _, o := range c.Changes {
			out.Objects = append(out.Objects, changeOfObject(o))
		}
	}
	return out
}

// words are those for the actions of a preview.
var words = map[string]string{"create": "new", "update": "changed", "recreate": "deleted and made again", "prune": "removed", "orphan": "left in place", "refuse": "refused", "remove": "removed", "keep": "left in place"}

func changeOfObject(c protocol.PreviewChange) objectChange {
	o := objectChange{Word: words[c.Action], Name: c.Type + " " + c.Name, More: c.More, Fields: fieldChanges(preview.FoldVersion(c.Fields))}
	if o.Word == "" {
		o.Word = c.Action // of a newer worker
	}
	if c.Namespace != "" {
		o.Name += " in " + c.Namespace
	}
	for _, conflict := range c.Conflicts {
		o.Notes = append(o.Notes, "conflict: "+conflict)
	}
	if c.Message != "" {
		o.Notes = append(o.Notes, c.Message)
	}
	if r := c.Replaces; r != nil {
		o.Notes = append(o.Notes, "its "+r.What+" are replaced: "+r.Why)
	}
	return o
}

func fieldChanges(all []protocol.PreviewField) (out []fieldChange) {
	paths := preview.ShortPaths(all)
	for n, f := range all {
		out = append(out, fieldChange{Path: paths[n], Old: preview.DisplayValue(f.Old), New: preview.DisplayValue(f.New)})
	}
	return out
}

// changesContent is the content of the page of what a version changes.
type changesContent struct {
	Title   string
	Tabs    tabs
	Version string   // "": nothing was released, and none was named
	Changes *changes // nil: there is no version
	Release link
}

// changesPage shows what the release of a version would change, of the newest one if none is named. Where a version runs already, that is what
// differs from it.
func (b *board) changesPage(r *http.Request) (page, error) {
	n, err := serviceOf(r)
	if err != nil {
		return page{}, err
	}
	version := strings.TrimSpace(r.URL.Query().Get("version"))
	status, err := read.Status(r.Context(), b.Calls, n)
	if err != nil {
		return page{}, err
	}
	c := changesContent{Tabs: tabs{n, "changes"}, Version: cmp.Or(version, status.Version)}
	title := "What " + n.String() + " changes"
	if c.Version != "" {
		title = "What " + n.String() + " " + c.Version + " changes"
		c.Changes, c.Release = b.changesOf(r.Context(), n, c.Version), actLink(n, protocol.Release, "Release "+c.Version, "version", c.Version)
	}
	c.Title = title
	return page{Name: "changes", Title: title, Nav: "services", Still: true, Content: c}, nil
}

// serviceOf returns the service of a path.
func serviceOf(r *http.Request) (connection.ServiceName, error) {
	n := connection.ServiceName{Application: r.PathValue("application"), Service: r.PathValue("service")}
	if !connection.IsName(n.Application) || !connection.IsName(n.Service) {
		return n, &pageError{http.StatusNotFound, n.String() + " is no name of a service."}
	}
	return n, nil
}

// tabs are the links between the pages of a service.
type tabs struct {
	Service connection.ServiceName
	Here    string
}
