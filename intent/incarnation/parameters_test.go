package incarnation_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/intent/incarnation"
	"github.com/converge-engine/converge/tests/intenttest"
)

// What a version has in a channel: a release's values over the configuration's.
func TestParametersIn(t *testing.T) {
	inc := intenttest.Dir(t, "../compile/testdata/shop").Incarnation
	in := incarnation.RenderInput{
		Version: "v1", Parameters: map[string]any{"region": "eu"},
		ChannelParameters: map[string]map[string]any{"prod-eu": {"replicas": 20}},
	}
	replicas := map[string]string{}
	for _, channel := range []string{"canary", "prod-eu", "prod-us"} {
		values, err := incarnation.ParametersIn(inc, "web", channel, in)
		require.NoError(t, err)
		require.Equal(t, "eu", values["region"])
		require.NotContains(t, values, "dbPassword")
		replicas[channel] = fmt.Sprint(values["replicas"])
	}
	require.Equal(t, map[string]string{"canary": "1", "prod-eu": "20", "prod-us": "12"}, replicas)

	_, err := incarnation.ParametersIn(inc, "nobody", "canary", in)
	require.ErrorContains(t, err, `no service "nobody"`)
	_, err = incarnation.ParametersIn(inc, "web", "nowhere", in)
	require.ErrorContains(t, err, `release channel "nowhere"`)
	in.Parameters["odd"] = 1
	_, err = incarnation.ParametersIn(inc, "web", "canary", in)
	require.ErrorContains(t, err, `no parameter "odd"`)
}
