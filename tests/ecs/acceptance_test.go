package ecs_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ecs"
	"github.com/stretchr/testify/require"

	"github.com/converge-engine/converge/tests/ecsfake"
)

// What the command says of a cluster is so, by the programs themselves: each thing that it tries holds on the fake, and nothing
// of it is left.
func TestAcceptanceOfECS_A11(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the programs; not with -short")
	}
	server := newAWS(t, ecsfake.Options{}, "test")
	server.Behave("shop/web:nopull", ecsfake.CannotPull("shop/web:nopull"))
	client := server.Client()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shop.converge.yaml"), []byte(`apiVersion: converge/v1
kind: Application
name: shop
releaseChannels: [{name: prod, runtimes: [{name: none}]}]
---
{apiVersion: converge/v1, kind: Runtime, name: none, custom: {apply: {command: ["true"]}}}
---
{apiVersion: converge/v1, kind: Service, name: other, initialVersion: v1}
`), 0o600))
	d := dev(t, dir, server)
	d.Start()
	d.Await("shop/other", "prod CONVERGED v1")
	for _, more := range [][]string{nil, {"--subnet", "subnet-1", "--subnet", "subnet-2", "--public-ip"}} {
		out, code := d.Converge(append([]string{"admin", "acceptance", "ecs", "--cluster", "test", "--region", "us-east-1", "--image", "shop/web", "--timeout", "3m"}, more...)...)
		require.Zero(t, code, out)
		require.Contains(t, out, "ok    a broken version is rolled back")
		require.Contains(t, out, "all steps passed")
		left, err := client.ListServices(t.Context(), &ecs.ListServicesInput{Cluster: aws.String("test")})
		require.NoError(t, err)
		require.Empty(t, left.ServiceArns)
	}
}
