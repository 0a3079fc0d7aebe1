package embedded

import (
	"time"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/dynamicconfig"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

// The server knows what visibility understands by the name of the plugin, so its store has the plugin itself. Both are
// the same database.
const (
	storeName      = "sqlite"
	visibilityName = "sqlite-visibility"
)

// Bounds in bytes of one payload: beyond the first the server warns, beyond the second it refuses.
const (
	WarnBlob = 64 << 10
	MaxBlob  = 512 << 10
)

// putAway is how long a task that the server has done stays with it. Whenever one is added to its queue the server looks through all that
// are there: half a minute's, as it would have it, were a tenth of its work while it starts 45 workflows a second.
const putAway = 2 * time.Second

// serverConfig is one cluster of one host with one shard, since SQLite writes one transaction at a time anyway.
func (p ports) serverConfig(db *database) (*config.Config, map[primitives.ServiceName]static.Hosts) {
	services := map[string]config.Service{}
	hosts := map[primitives.ServiceName]static.Hosts{}
	for name, port := range map[primitives.ServiceName]port{
		primitives.FrontendService: p.frontend,
		primitives.HistoryService:  p.history,
		primitives.MatchingService: p.matching,
		primitives.WorkerService:   p.worker,
	} {
		services[string(name)] = config.Service{RPC: config.RPC{BindOnIP: loopback, GRPCPort: port.number}}
		hosts[name] = static.SingleLocalHost(port.address())
	}
	const disabled = "disabled"
	return &config.Config{
		Global: config.Global{Membership: config.Membership{BroadcastAddress: loopback}},
		Persistence: config.Persistence{
			DefaultStore:     storeName,
			VisibilityStore:  visibilityName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{storeName: {SQL: db.main()}, visibilityName: {SQL: db.sql}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: p.frontend.address()},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            services,
		Archival: config.Archival{
			History:    config.HistoryArchival{State: disabled},
			Visibility: config.VisibilityArchival{State: disabled},
		},
		PublicClient: config.PublicClient{HostPort: p.frontend.address()},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: disabled},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: disabled},
		}},
	}, hosts
}

// settings are the server's dynamic configuration. Values are kept as the server wants them returned: it remembers
// its conversion of a value by the slice that it was given.
type settings struct {
	values map[dynamicconfig.Key][]dynamicconfig.ConstrainedValue
}

func newSettings() *settings {
	s := &settings{values: map[dynamicconfig.Key][]dynamicconfig.ConstrainedValue{}}
	// The defaults of 20 polls a second per shard suit thousands of shards; with one they add up to 50 ms to each hop.
	s.set(dynamicconfig.TransferProcessorMaxPollRPS.Key(), 1000)
	s.set(dynamicconfig.TimerProcessorMaxPollRPS.Key(), 1000)
	s.set(dynamicconfig.TransferProcessorUpdateAckInterval.Key(), putAway)
	s.set(dynamicconfig.VisibilityProcessorUpdateAckInterval.Key(), putAway)
	// Limits that protect a shared database and a shared frontend: here there is one user.
	s.set(dynamicconfig.FrontendPersistenceMaxQPS.Key(), 10000)
	s.set(dynamicconfig.HistoryPersistenceMaxQPS.Key(), 45000)
	s.set(dynamicconfig.FrontendMaxNamespaceVisibilityRPSPerInstance.Key(), 100)
	// Room for as many workflows as a laptop holds awake, a sixteenth of what a cluster's host is given.
	s.set(dynamicconfig.HistoryCacheHostLevelMaxSize.Key(), 8192)
	// What is too large for a server of one's own is too large here. A server warns from 512 KiB on and takes 2 MiB; no
	// payload of ours passes 64 KiB, but people may send what does, to be told so.
	s.set(dynamicconfig.BlobSizeLimitWarn.Key(), WarnBlob)
	s.set(dynamicconfig.BlobSizeLimitError.Key(), MaxBlob)
	// The server would ask its makers for newer versions.
	s.set(dynamicconfig.EnableServerVersionCheck.Key(), false)
	return s
}

func (s *settings) set(key dynamicconfig.Key, value any) {
	s.values[key] = []dynamicconfig.ConstrainedValue{{Value: value}}
}

// GetValue implements dynamicconfig.Client.
func (s *settings) GetValue(key dynamicconfig.Key) []dynamicconfig.ConstrainedValue {
	return s.values[key]
}
