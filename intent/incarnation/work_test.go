package incarnation_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/entities/plan"
	"github.com/converge-engine/converge/intent/incarnation"
)

// What is planned is made once, however many commands of a plan ask for it.
func TestPlanWorkIsCached_E8(t *testing.T) {
	doc := incarnation.Document{Schema: incarnation.Schema, Application: "home", Channels: []incarnation.Channel{{Name: "live", Plan: &plan.Work{}}, {Name: "plain"}}}
	for n := range 1000 {
		name := fmt.Sprintf("s%d", n)
		doc.Services = append(doc.Services, incarnation.Service{Name: name, Key: "first-" + name})
		doc.Channels[0].Plan.Services = append(doc.Channels[0].Plan.Services, plan.Service{Name: name})
	}
	text, err := json.Marshal(doc)
	require.NoError(t, err)
	inc, err := incarnation.Parse(text)
	require.NoError(t, err)
	require.Equal(t, "first-s7", inc.Work("live").KeyOf("s7"))
	require.Nil(t, inc.Work("plain"))
	require.Less(t, testing.AllocsPerRun(10, func() { inc.Work("live") }), 2.0)
	require.Same(t, inc.Work("live"), inc.Work("live"))
}
