package worker

import (
	"net"

	"go.temporal.io/sdk/client"
)

// Compression is how what is said to a server is compressed: not at all on this machine, where it costs more than it saves; else as the SDK
// does by itself.
func Compression(address string) client.GrpcCompression {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "localhost" || ip != nil && ip.IsLoopback()) {
		return &client.GrpcCompressionNone{}
	}
	return nil
}
