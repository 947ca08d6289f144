// The views of the page, in the order of their tabs: {id, title, draw(place, page)}.

import { mapView } from "./map.js";
import { shareView } from "./share.js";

export const VIEWS = [mapView, shareView];
