// The views of the page, in the order of their tabs: {id, title, draw(place, page)}.

import { attentionView } from "./attention.js";
import { lensView } from "./lens.js";
import { mapView } from "./map.js";
<<<<<<< HEAD
import { backwardView } from "./backward.js";
import { changeView } from "./change_view.js";
import { toursView } from "./tours.js";

export const VIEWS = [mapView, attentionView, lensView, changeView, backwardView, toursView];
=======
import { shareView } from "./share.js";

export const VIEWS = [mapView, shareView];
>>>>>>> h-share
