package connection

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
)

// Requests are compressed unless the server is on this machine.
func TestCompressionIsForOtherMachines(t *testing.T) {
	for address, here := range map[string]bool{
		"127.0.0.1:7233": true, "[::1]:7233": true, "localhost:7233": true,
		"10.0.0.1:7233": false, "temporal:7233": false, "ns.tmprl.cloud:7233": false, "127.0.0.1": false, "": false,
	} {
		if _, none := Compression(address).(*client.GrpcCompressionNone); none != here {
			require.Failf(t, "compression", "%s: %v", address, Compression(address))
		}
	}
}
