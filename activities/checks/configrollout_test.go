package checks_test

import (
	"testing"
	"time"

	"github.com/converge-engine/converge/activities/checks"
	"github.com/converge-engine/converge/entities"
	"github.com/converge-engine/converge/entities/protocol"
)

// A config release waits for its turn among the services. A release by version does not (D24, B9).
func TestConfigRollout_D24_B9(t *testing.T) {
	t.Parallel()
	policy := func(d *entities.CheckDefinition) {
		d.ConfigRollout = &entities.ConfigRollout{MaxFailures: 1, Steps: []entities.RolloutStep{
			{Instances: &entities.Amount{Number: 1}}, {Pause: 10 * time.Minute}, {Instances: &entities.Amount{Percent: 100}},
		}}
	}
	config := newRequest(entities.CheckConfigRollout, policy)
	config.Service = "web"
	byVersion, another, later := config, config, config
	byVersion.Version, byVersion.Evaluation.FullVersion = "v3", "v3"
	another.Evaluation.Release = "r1"
	later.Now = config.Now.Add(10 * time.Minute)
	shop := func(api protocol.Configured) checks.Sources {
		w := newWorld(nil)
		api.Service = "service/shop/api"
		w.Configurations = []protocol.Configured{{Service: "service/shop/web", Release: "r2", Waiting: true}, api}
		return w.Sources()
	}
	at := config.Now
	Conform(t, Kind{Kind: entities.CheckConfigRollout, Rows: []Row{
		{Name: "first", Sources: shop(protocol.Configured{Release: "r", Waiting: true, HoldReason: "prod is paused by carol"}), Request: config, Want: entities.Pass, Reason: "0 of 2 services have incarnation 7; it is one of the next"},
		{Name: "second", Sources: shop(protocol.Configured{Release: "r", Waiting: true}), Request: config, Want: entities.Wait, Reason: "0 of 2 services have incarnation 7; next shop/api"},
		{Name: "pause", Sources: shop(protocol.Configured{Release: "r", Entered: true, Succeeded: true, Since: at}), Request: config, Want: entities.Wait, Reason: "1 of 2 services have incarnation 7; next 1 at 09:10:00 UTC"},
		{Name: "after it", Sources: shop(protocol.Configured{Release: "r", Entered: true, Succeeded: true, Since: at}), Request: later, Want: entities.Pass, Reason: "1 of 2 services have incarnation 7; it is one of the next"},
		{Name: "failed", Sources: shop(protocol.Configured{Release: "r", Entered: true, Failed: true, Since: at}), Request: config, Want: entities.Fail, Reason: "1 of 2 services failed with incarnation 7: shop/api; held until they are fixed or a newer configuration is published"},
		{Name: "by its version", Sources: shop(protocol.Configured{Entered: true, Failed: true}), Request: byVersion, Want: entities.Pass, Reason: "it is not a config release"},
		{Name: "another release", Sources: shop(protocol.Configured{Entered: true, Failed: true}), Request: another, Want: entities.Pass, Reason: "it is not a config release"},
	}})
}
