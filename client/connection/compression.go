package connection

import (
	"net"

	"go.temporal.io/sdk/client"
)

// Compression is the compression of requests to a server: none on this machine, where it costs more than it saves; otherwise the default of
// the SDK.
func Compression(address string) client.GrpcCompression {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return &client.GrpcCompressionNone{}
	}
	return nil
}
